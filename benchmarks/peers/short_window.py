# SPDX-License-Identifier: Apache-2.0
"""Five micro-batches, four to an update: how large is the last update? `python benchmarks/peers/short_window.py`

The loss is linear in the one weight, so the gradient of a mean over examples does not depend on where the weight stands,
and an update at learning rate 1 is that mean. The last update has one micro-batch of four examples, and should be their mean.
"""

import tempfile
from itertools import pairwise

import torch
from table import ACCELERATE, IGNITE, LIGHTNING, LIGHTNING_PLAIN, TRUESTEP, Row, quiet, show
from torch import nn
from torch.utils.data import DataLoader

import truestep as ts

MICRO_BATCH, ACCUMULATE = 4, 4
INPUTS = 1 + torch.rand(5 * MICRO_BATCH, 1, generator=torch.Generator().manual_seed(0))
WINDOW = MICRO_BATCH * ACCUMULATE
RIGHT = [float(INPUTS[:WINDOW].mean()), float(INPUTS[WINDOW:].mean())]


def network():
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    return net


def loader():
    return DataLoader(INPUTS, batch_size=MICRO_BATCH)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1.0)


def lightning():
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()
            self.weights = []

        def training_step(self, batch, batch_idx):
            return self.net(batch).mean()

        def on_before_zero_grad(self, optimizer):
            self.weights.append(float(self.net.weight))

        def configure_optimizers(self):
            return sgd(self.parameters())

    module = Module()
    pl.Trainer(**LIGHTNING_PLAIN, max_epochs=1, accumulate_grad_batches=ACCUMULATE).fit(module, loader())
    return [*module.weights, float(module.net.weight)]


def accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    net = network()
    net, optimizer, batches = accelerator.prepare(net, sgd(net.parameters()), loader())
    weights = [float(net.weight)]
    for batch in batches:
        with accelerator.accumulate(net):
            accelerator.backward(net(batch).mean())
            optimizer.step()
            optimizer.zero_grad()
        weights.append(float(net.weight))
    return weights


def ignite():
    from ignite.engine import Events, create_supervised_trainer

    net = network()
    trainer = create_supervised_trainer(
        net,
        sgd(net.parameters()),
        lambda outputs, _: outputs.mean(),
        prepare_batch=lambda batch, **_: (batch, None),
        gradient_accumulation_steps=ACCUMULATE,
    )
    weights = [float(net.weight)]
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: weights.append(float(net.weight)))
    trainer.run(loader(), max_epochs=1)
    return weights


def truestep():
    with tempfile.TemporaryDirectory() as folder, ts.Run(folder, progress=False) as run:
        net = run.learner(network(), sgd, micro_batch=MICRO_BATCH)
        batches = run.data(INPUTS, batch_size=WINDOW)
        weights = [float(net.weight)]
        for _ in run.epochs(1):
            for batch in run.batches(batches):
                net.update(lambda rows: net(rows).squeeze(1), batch)
                weights.append(float(net.weight))
    return weights


def updates() -> dict[str, list[float]]:
    """Return what each library's updates are, relative to the right ones; 0.0 where there is none."""
    contenders = {LIGHTNING: lightning, ACCELERATE: accelerate, IGNITE: ignite, TRUESTEP: truestep}
    found = {}
    for name, train in contenders.items():
        steps = [a - b for a, b in pairwise(train()) if a != b]
        steps += [0.0] * (len(RIGHT) - len(steps))
        found[name] = [step / right for step, right in zip(steps, RIGHT, strict=True)]
    return found


def rows(found: dict[str, list[float]]):
    for name, ratios in found.items():
        for case, ratio in zip(["a full window", "the last window, one micro-batch"], ratios, strict=True):
            said = f"{ratio:.2f} times the right update" if ratio else "no update"
            yield Row(name, case, "1.00 times the right update", said, abs(ratio - 1) < 1e-5)


if __name__ == "__main__":
    quiet()
    found = updates()
    show(f"{len(INPUTS) // MICRO_BATCH} micro-batches, {ACCUMULATE} to an update", rows(found))
    print("\nThe last update, relative to the right one:\n")
    print(f"| {' | '.join(found)} |\n|{'---|' * len(found)}")
    print(f"| {' | '.join(f'{ratios[-1]:.2f}' for ratios in found.values())} |")
