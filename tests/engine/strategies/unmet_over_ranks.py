# SPDX-License-Identifier: Apache-2.0
"""Drawn trainings, whose ranks need not meet for an update: `python unmet_over_ranks.py FOLDER SEED...`.

Each rank writes what it ends with, and how many messages it has begun, into FOLDER/RANK.pt; with `apart` it goes another way.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

import truestep as ts
from truestep.engine.processes.world import World
from truestep.engine.strategies import buckets, first_message
from truestep.run import agreement

NEVER = 99
HANGS_SECONDS = 4.0  # of a run's `timeout_seconds`
NUM_MESSAGES = {"small": 1, "norm": 1, "middle": 1, "wide": 3, "wide last": 3}  # of an update


class Drawn(NamedTuple):
    """One training: what a stranger's could be."""

    rows: int
    batch_size: int
    shuffle: bool
    as_list: bool  # else tensors
    weighted: bool
    measured: bool  # a metric
    draws_from: int  # the step from which the loss draws
    drops_from: int  # the step from which the body leaves examples out
    host_draws: bool  # from Python's stream, in the loss; of no consequence, but for a resume
    micro_batch: int | None
    two: bool  # learners
    dtype: torch.dtype
    model: str


def draw(seed):
    chance = random.Random(seed)
    model = chance.choice([*NUM_MESSAGES])
    batch_size = chance.randint(4, 9)
    return Drawn(
        rows=batch_size * chance.randint(1, 4) + chance.choice([0, 3]),
        batch_size=batch_size,
        shuffle=chance.random() < 0.5,
        as_list=chance.random() < 0.3,
        weighted=chance.random() < 0.3,
        measured=chance.random() < 0.3,
        draws_from=chance.choice([0, 0, 3, NEVER]),
        drops_from=chance.choice([0, 2, 5, NEVER, NEVER]),
        host_draws=chance.random() < 0.5,
        micro_batch=chance.choice([None, None, 1, 2]),
        two=chance.random() < 0.3,
        dtype=chance.choice([torch.float32, torch.float64][: 1 + (model != "middle")]),
        model=model,
    )


def network(model):
    """Return a model whose gradients fit into the first message, or else some of them do, or (the last layer's) none.

    For the middle one, in single precision, the message is larger than without it.
    """
    if model == "norm":
        return with_norm("small")
    if model == "small":
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    if model == "middle":
        return nn.Sequential(nn.Linear(3, 130), nn.Tanh(), nn.Linear(130, 130), nn.Linear(130, 1))
    first, last = (nn.Linear(160, 1),), (nn.Linear(160, 160, bias=False),)
    return nn.Sequential(
        nn.Linear(3, 160), nn.Tanh(), *(last if model == "wide last" else (nn.Linear(160, 160), *first))
    )


def examples(drawn):
    values = torch.randn(drawn.rows, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values[:, 0] = torch.arange(drawn.rows) % 4
    return values.to(drawn.dtype)


def trained(drawn, folder, epochs, host=0.0):
    """Train for so many epochs of two; return the weights, the messages that updates began, the examples of each, and this
    process's part of them.

    `host`: how much the loss draws from Python's stream, which is each rank's own: one process ends otherwise.
    """
    torch.manual_seed(0)
    with ts.Run(folder, progress=False, quiet=True, doctor=False, seed=3, strategy="auto") as run:
        names = "ab" if drawn.two else "a"
        nets = [
            run.learner(
                network(drawn.model).to(drawn.dtype),
                lambda p: torch.optim.SGD(
                    p, lr=0.1 if drawn.model in ("small", "norm") else 1e-3, momentum=0.9
                ),
                name=name,
            )
            for name in names
        ]
        values = examples(drawn)
        data = run.data(
            list(values) if drawn.as_list else values, batch_size=drawn.batch_size, shuffle=drawn.shuffle
        )
        num_begun, counts, own = 0, [], []
        for _ in run.epochs(epochs):
            for batch in run.batches(data):
                if run.step > drawn.drops_from:
                    batch = batch[batch[:, 0] != 1]
                for net in nets:
                    before = messages()
                    update = net.update(loss_of(drawn, run, net, host), batch, micro_batch=drawn.micro_batch)
                    num_begun += messages() - before
                    counts.append(update.num_examples)
                    own.append(len(batch))
        weights = [each.detach().clone() for net in nets for each in net.module.parameters()]
    return weights, num_begun, counts, own


def messages():
    return World.here.num_begun if World.here is not None else 0


def loss_of(drawn, run, net, host):
    def loss(rows):
        found = net(rows).mean(1)
        if run.step > drawn.draws_from:
            found = found + ts.rand(len(rows), dtype=rows.dtype)
        if drawn.host_draws:
            found = found + host * random.random()
        metrics = {"size": found.detach().abs()} if drawn.measured else {}
        if drawn.weighted:
            return ts.weighted(found.square(), rows[:, 0] + 1, **metrics)
        return ts.weighted(found.square(), **metrics) if metrics else found.square()

    return loss


def all_of(seeds, folder):
    found = {}
    for seed in seeds:
        drawn = draw(seed)
        alike = trained(drawn, folder / f"{seed}-alike", 2)
        whole = trained(drawn, folder / f"{seed}-whole", 2, host=0.01)[0]
        trained(drawn, folder / f"{seed}-halved", 1, host=0.01)
        halved = trained(drawn, folder / f"{seed}-halved", 2, host=0.01)[0]
        found[seed] = {"alike": alike, "whole": whole, "halved": halved}
    torch.save(found, folder / f"{os.environ['RANK']}.pt")


def with_norm(model):
    """Return it with a batch normalisation that does not train, as of a pretrained part."""
    whole = nn.Sequential(nn.BatchNorm1d(3), network(model))
    whole[0].eval()
    return whole


def change_or_fail(how, layer, folder):
    if how == "frozen":
        layer.bias.requires_grad_(False)
    if how == "norm":
        layer.train()
    if how == "raises":
        raise ValueError("a bad batch")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how.startswith("hangs"):
        (folder / "hangs-1").write_text(str(time.time()))
        time.sleep(120)


def apart(how, models, folder):
    """Go another way than the other rank at the third batch, or fail."""
    options = {"timeout_seconds": HANGS_SECONDS} if how.startswith("hangs") else {}
    run = ts.Run(folder / "apart", progress=False, quiet=True, doctor=False, **options)
    make = with_norm if how == "norm" else network
    first, second = (
        run.learner(make(model), lambda p: torch.optim.SGD(p, lr=1e-4), name=name)
        for name, model in zip(("critic", "maker"), models.split(","), strict=True)
    )
    rows = run.data(torch.ones(16, 3), batch_size=4)
    for _ in run.epochs(1):
        for batch in run.batches(rows):
            for net in (first, second):
                if run.step == 3 and run.rank == 1:
                    change_or_fail(how, net.module[0], folder)
                if run.step == 3 and (how, run.rank) in (("evaluates", 1), ("hangs behind", 0)):
                    net.evaluate(lambda part, net=net: net(part).sum(1), rows)
                elif run.step == 3 and how == "other" and run.rank == 1:
                    second.update(lambda part: second(part).sum(1), batch)
                elif run.step != 3 or how != "left_out" or run.rank == 0 or net is first:
                    net.update(lambda part, net=net: net(part).sum(1), batch)


if __name__ == "__main__":
    # so that a model that a test can train has several
    first_message.MOST_BYTES, buckets.BUCKET_BYTES = 100_000, 1 << 15
    agreement.SECONDS_BETWEEN = (
        1e9  # where steps take long, each is followed by a meeting about what all do next
    )
    if sys.argv[1] == "apart":
        try:
            apart(*sys.argv[2:4], Path(sys.argv[4]))
        except Exception:
            Path(sys.argv[4], f"raised-{os.environ['RANK']}").write_text(str(time.time()))
            raise
    else:
        all_of(map(int, sys.argv[2:]), Path(sys.argv[1]))
