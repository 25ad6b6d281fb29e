# SPDX-License-Identifier: Apache-2.0
"""Two optimizers in float16: how large is the second's update? `python benchmarks/peers/two_optimizers.py`

Each net's loss is linear in its weights, so the right update is known: learning rate times the mean input. Inputs are powers
of two, so float16 rounds nothing. The scale starts at 1,024. There is no GPU here: Accelerate's float16 path is switched on
by hand on a CPU (`native_amp`, and a `GradScaler` for the CPU), Lightning's is its own precision plugin made for the CPU. What
the libraries then do with optimizers and scaler is their own code, the same as on a GPU. "by hand" is torch's documented recipe,
where `scaler.update()` is called once an iteration.

The second part counts the batches that `max_steps=4` gives with two optimizers.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import torch
from table import ACCELERATE, LIGHTNING, LIGHTNING_PLAIN, TORCH, TRUESTEP, Row, quiet, show
from torch import nn
from torch.utils.data import DataLoader

import truestep as ts

SCALE = 1024.0
ROWS = torch.full((4, 2), 0.5)
RIGHT = 0.5
NORM = 100.0  # clips at a norm that no gradient here has, once unscaled
HUGE = 2.0**10  # times the scale, more than float16 holds


@dataclass(frozen=True)
class Case:
    """What happens in the one iteration."""

    name: str
    growth_interval: int = 2000
    overflow: bool = False
    clip: str = ""  # one norm over "both", or one for "each": too large to change anything
    separate: bool = False  # a backward and a step for one net, then for the other

    def losses(self, first: Callable, second: Callable, rows):
        return first(rows).squeeze(1) * (HUGE if self.overflow else 1.0), second(rows).squeeze(1)


CASES = [
    Case("nothing happens"),
    Case("the scale grows", growth_interval=1),
    Case("the first overflows", overflow=True),
    Case("one clip over both", clip="both"),
    Case("each clipped by itself", clip="each"),
    Case("the scale grows; one backward and step after the other", growth_interval=1, separate=True),
]


def network():
    net = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(net.weight)
    return net


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1.0, fused=False)


def scaler(case):
    return torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=case.growth_interval)


def clipped_together(case, nets):
    """Return the lists of parameters over each of which one norm is taken."""
    each = [list(net.parameters()) for net in nets]
    return {"": [], "each": each, "both": [each[0] + each[1]]}[case.clip]


def by_hand(case):
    nets = [network(), network()]
    optimizers = [sgd(net.parameters()) for net in nets]
    scale = scaler(case)
    with torch.autocast("cpu", torch.float16):
        losses = [loss.mean() for loss in case.losses(*nets, ROWS)]
    scale.scale(sum(losses)).backward()
    if case.clip:
        for optimizer in optimizers:
            scale.unscale_(optimizer)
        for parameters in clipped_together(case, nets):
            nn.utils.clip_grad_norm_(parameters, NORM)
    for optimizer in optimizers:
        scale.step(optimizer)
    scale.update()
    return nets[1]


def accelerate(case):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, mixed_precision="fp16")
    accelerator.native_amp, accelerator.scaler = True, scaler(case)  # as on a GPU
    nets = accelerator.prepare(network(), network())
    optimizers = accelerator.prepare(*[sgd(net.parameters()) for net in nets])
    losses = [loss.mean() for loss in case.losses(*nets, ROWS)]
    if case.separate:
        for loss, optimizer in zip(losses, optimizers, strict=True):
            accelerator.backward(loss)
            optimizer.step()
        return nets[1]
    accelerator.backward(sum(losses))
    for parameters in clipped_together(case, nets):
        accelerator.clip_grad_norm_(parameters, NORM)
    for optimizer in optimizers:
        optimizer.step()
    return nets[1]


def lightning(case):
    import lightning.pytorch as pl
    from lightning.pytorch.plugins.precision import MixedPrecision

    if case.clip == "both":
        return None  # it clips one optimizer's parameters at a time

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.first, self.second = network(), network()

        def training_step(self, rows, batch_idx):
            losses = [loss.mean() for loss in case.losses(self.first, self.second, rows)]
            if case.separate:
                for loss, optimizer in zip(losses, self.optimizers(), strict=True):
                    self.manual_backward(loss)
                    optimizer.step()
                return
            self.manual_backward(sum(losses))
            for optimizer in self.optimizers():
                if case.clip:
                    self.clip_gradients(optimizer, gradient_clip_val=NORM, gradient_clip_algorithm="norm")
                optimizer.step()

        def configure_optimizers(self):
            return [sgd(self.first.parameters()), sgd(self.second.parameters())]

    module = Module()
    plugin = MixedPrecision("16-mixed", "cpu", scaler(case))
    pl.Trainer(**LIGHTNING_PLAIN, max_epochs=1, plugins=[plugin]).fit(module, DataLoader(ROWS, batch_size=4))
    return module.second


def truestep(case):
    scale = ts.LossScale(initial=SCALE, growth_interval=case.growth_interval)
    with (
        tempfile.TemporaryDirectory() as folder,
        ts.Run(folder, precision="fp16-mixed", progress=False) as run,
    ):
        if case.clip == "both":  # one learner of two nets and two optimizers is clipped as one
            nets = [network(), network()]
            both = run.learner(
                nets,
                lambda _: [sgd(net.parameters()) for net in nets],
                clip=ts.ClipNorm(NORM),
                loss_scale=scale,
            )
            both.update(lambda rows: sum(case.losses(*nets, rows)), ROWS)
            return nets[1]
        clip = ts.ClipNorm(NORM) if case.clip else None
        learners = [
            run.learner(network(), sgd, name=name, clip=clip, loss_scale=scale)
            for name in ("first", "second")
        ]
        if case.separate:
            for number, learner in enumerate(learners):
                learner.update(lambda rows, number=number: case.losses(*learners, rows)[number], ROWS)
        else:
            ts.update(learners, lambda rows: sum(case.losses(*learners, rows)), ROWS)
        return learners[1].module


def update_rows():
    contenders = {
        f"{TORCH}, by hand": by_hand,
        ACCELERATE: accelerate,
        LIGHTNING: lightning,
        TRUESTEP: truestep,
    }
    for case in CASES:
        for name, train in contenders.items():
            if case.separate and train is by_hand:
                continue
            yield update_row(name, case, train)


def update_row(name, case, train):
    expected = "1 times the right update"
    try:
        net = train(case)
    except RuntimeError as error:
        return Row(
            name, case.name, expected, f"{type(error).__name__}: {str(error).partition('.')[0]}", False
        )
    if net is None:
        return Row(name, case.name, "–", "it clips one optimizer at a time", None)
    ratio = -float(net.weight.mean()) / RIGHT
    return Row(name, case.name, expected, f"{ratio:.4g} times the right update", ratio == 1.0)


# ---------------------------------------------------------------------- max_steps

MAX_STEPS = 4


def lightning_batches():
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.first, self.second, self.batches = network(), network(), 0

        def training_step(self, rows, batch_idx):
            self.batches += 1
            for net, optimizer in zip((self.first, self.second), self.optimizers(), strict=True):
                optimizer.zero_grad()
                self.manual_backward(net(rows).mean())
                optimizer.step()

        def configure_optimizers(self):
            return [sgd(self.first.parameters()), sgd(self.second.parameters())]

    module = Module()
    data = DataLoader(torch.ones(40, 2), batch_size=4)
    pl.Trainer(**LIGHTNING_PLAIN, max_steps=MAX_STEPS).fit(module, data)
    return module.batches


def truestep_batches():
    with tempfile.TemporaryDirectory() as folder, ts.Run(folder, progress=False) as run:
        learners = [run.learner(network(), sgd, name=name) for name in ("first", "second")]
        data, batches = run.data(torch.ones(40, 2), batch_size=4), 0
        for _ in run.batches(data):
            batches += 1
            for learner in learners:
                learner.update(lambda rows, learner=learner: learner(rows).squeeze(1), torch.ones(4, 2))
            if run.step == MAX_STEPS:
                break
    return batches


def step_rows():
    counted = {
        LIGHTNING: (f"max_steps={MAX_STEPS}", lightning_batches),
        TRUESTEP: (f"a loop until run.step == {MAX_STEPS}", truestep_batches),
    }
    for name, (case, train) in counted.items():
        batches = train()
        yield Row(name, case, f"{MAX_STEPS} batches", f"{batches} batches", batches == MAX_STEPS)
    yield Row(ACCELERATE, "counts no steps: the loop is the user's", "–", "–", None)


if __name__ == "__main__":
    quiet()
    show("The second of two optimizers in float16, one iteration", update_rows())
    print()
    show("Batches that are trained on, with two optimizers", step_rows())
