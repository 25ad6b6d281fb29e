# SPDX-License-Identifier: Apache-2.0
"""The same training in six libraries, each as its documentation recommends, with the same fused optimizer.

A contender is a function of (task, number of steps) that trains and returns the moments at which each step began.
"""

import logging
import tempfile
import time
import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

now = time.perf_counter


@dataclass(frozen=True)
class Task:
    """A model, one batch that is given again and again, and whether gradients are clipped."""

    name: str
    make: object
    inputs: torch.Tensor
    labels: torch.Tensor
    clip: bool

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make()

    def loss(self, scores, labels, reduction="mean"):
        if scores.ndim == 2 and scores.shape[1] > 1:
            return F.cross_entropy(scores, labels, reduction=reduction)
        return F.mse_loss(scores.squeeze(1), labels, reduction=reduction)


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


class Handwritten:
    """The best loop by hand: fused step, clip over a list made once, nothing read from the loss."""

    def __init__(self, task):
        self.task, self.net = task, task.model()
        self.optimizer = optimizer(self.net.parameters())
        self.parameters = list(self.net.parameters())

    def run(self, steps):
        task, net, best, began = self.task, self.net, self.optimizer, []
        for _ in range(steps):
            began.append(now())
            best.zero_grad()
            task.loss(net(task.inputs), task.labels).backward()
            if task.clip:
                nn.utils.clip_grad_norm_(self.parameters, 1.0)
            best.step()
        return began


class Notes:
    """The loop as notes write it: unfused, clip over a fresh generator, the loss read at every step."""

    def __init__(self, task):
        self.task, self.net = task, task.model()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4)

    def run(self, steps):
        task, net, began, running = self.task, self.net, [], 0.0
        for _ in range(steps):
            began.append(now())
            self.optimizer.zero_grad()
            loss = task.loss(net(task.inputs), task.labels)
            loss.backward()
            if task.clip:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            self.optimizer.step()
            running += loss.item()
        return began


class Truestep:
    def __init__(self, task, clip=None, **options):
        import truestep as ts

        self.task = task
        self.folder = tempfile.TemporaryDirectory()
        self.training = ts.Run(self.folder.name, progress=False)
        self.net = self.training.learner(
            task.model(), optimizer, clip=clip or (ts.ClipNorm(1.0) if task.clip else None), **options
        )
        self.sources = {}

    def run(self, steps):
        task, net, began = self.task, self.net, []

        def loss(batch):
            inputs, labels = batch
            return task.loss(net(inputs), labels, reduction="none")

        if steps not in self.sources:
            rows = (task.inputs.repeat(steps, 1), task.labels.repeat(steps))
            self.sources[steps] = self.training.data(rows, batch_size=len(task.inputs))
        for batch in self.training.batches(self.sources[steps]):
            began.append(now())
            net.update(loss, batch)
        return began


class Repeat:
    """The task's batch, again and again: what every library is given."""

    steps = 0

    def __init__(self, task):
        self.batch = (task.inputs, task.labels)

    def __iter__(self):
        for _ in range(Repeat.steps):
            yield self.batch

    def __len__(self):
        return Repeat.steps


class Fabric:
    def __init__(self, task):
        from lightning.fabric import Fabric as LightningFabric

        self.task = task
        self.fabric = LightningFabric(accelerator="cpu", devices=1)
        net = task.model()
        self.net, self.optimizer = self.fabric.setup(net, optimizer(net.parameters()))

    def run(self, steps):
        task, net, best, fabric, began = self.task, self.net, self.optimizer, self.fabric, []
        for _ in range(steps):
            began.append(now())
            best.zero_grad()
            fabric.backward(task.loss(net(task.inputs), task.labels))
            if task.clip:
                fabric.clip_gradients(net, best, max_norm=1.0)
            best.step()
        return began


class Accelerate:
    def __init__(self, task):
        from accelerate import Accelerator

        self.task = task
        self.accelerator = Accelerator(cpu=True)
        net = task.model()
        self.net, self.optimizer = self.accelerator.prepare(net, optimizer(net.parameters()))

    def run(self, steps):
        task, net, best, accelerator, began = self.task, self.net, self.optimizer, self.accelerator, []
        for _ in range(steps):
            began.append(now())
            best.zero_grad()
            accelerator.backward(task.loss(net(task.inputs), task.labels))
            if task.clip:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            best.step()
        return began


class Ignite:
    def __init__(self, task):
        from ignite.engine import Engine

        self.task, net = task, task.model()
        best, self.began = optimizer(net.parameters()), []

        def step(engine, batch):
            self.began.append(now())
            inputs, labels = batch
            best.zero_grad()
            loss = task.loss(net(inputs), labels)
            loss.backward()
            if task.clip:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            best.step()
            return loss.detach()

        self.engine = Engine(step)

    def run(self, steps):
        self.began.clear()
        self.engine.run([(self.task.inputs, self.task.labels)] * steps, max_epochs=1)
        return list(self.began)


class Lightning:
    def __init__(self, task):
        self.task = task
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    def run(self, steps):
        import lightning.pytorch as pl

        task, began = self.task, []

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = task.model()

            def training_step(self, batch, batch_idx):
                began.append(now())
                inputs, labels = batch
                return task.loss(self.net(inputs), labels)

            def configure_optimizers(self):
                return optimizer(self.parameters())

        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            gradient_clip_val=1.0 if task.clip else None,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Repeat.steps = steps
            trainer.fit(Module(), Repeat(task))
        return began


def one_parameter() -> Task:
    inputs = torch.randn(8, 1)
    return Task(
        "one parameter", lambda: nn.Linear(1, 1, bias=False), inputs, inputs.squeeze(1) * 2, clip=False
    )


def perceptron(clip: bool = True) -> Task:
    layers = (nn.Linear, (64, 128), (128, 128), (128, 10))

    def make():
        linear = [layers[0](*size) for size in layers[1:]]
        return nn.Sequential(linear[0], nn.ReLU(), linear[1], nn.ReLU(), linear[2])

    name = "0.3 ms step" + (", clipped" if clip else "")
    return Task(name, make, torch.randn(32, 64), torch.randint(0, 10, (32,)), clip)


ALL = {
    "hand-written, best": Handwritten,
    "Truestep": Truestep,
    "Fabric": Fabric,
    "Accelerate": Accelerate,
    "Ignite": Ignite,
    "Lightning": Lightning,
}
