# SPDX-License-Identifier: Apache-2.0
"""A training of two ranks, one of which fails in the middle of an update: `python fails_in_update.py FOLDER SEED`.

Without a seed (`-`) none does. Each rank prints the sum of its weights' bits at the end.
"""

import os
import random
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

import truestep as ts
from truestep.engine.processes.world import World
from truestep.engine.strategies import buckets, first_message

PLACES = ["in the loss", "in the backward", "before a message", "behind a message", "in the step"]


class Failure(NamedTuple):
    """Who fails, how, in which update of how large a model, and where in it."""

    rank: int
    is_killed: bool
    step: int
    place: str
    message: int
    is_wide: bool


def draw(seed):
    chance = random.Random(seed)
    return Failure(
        chance.randint(0, 1),
        chance.random() < 0.5,
        chance.randint(2, 7),
        PLACES[seed % len(PLACES)],
        chance.randint(0, 2),
        seed % 2 == 0,
    )


class Failing:
    """Fails when it comes to its place."""

    def __init__(self, failure, run):
        self._failure, self._run, self._num_begun = failure, run, 0
        self.in_update = False
        begin = World.begin

        def begun(world, start):
            number = self._num_begun
            self._num_begun += self.in_update
            self.come_to("before a message", number)
            work = begin(world, start)
            self.come_to("behind a message", number)
            return work

        World.begin = begun

    def update_begins(self):
        self._num_begun, self.in_update = 0, True

    def come_to(self, place, message=None):
        failure = self._failure
        if not self.in_update or self._run.step != failure.step or self._run.rank != failure.rank:
            return
        num_messages = 3 if failure.is_wide else 1
        if place != failure.place or (message is not None and message != failure.message % num_messages):
            return
        if failure.is_killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("a bad update")


class Step(torch.optim.SGD):
    """Tells when it steps."""

    tell = staticmethod(lambda place: None)

    def step(self, closure=None):
        self.tell("in the step")
        return super().step(closure)


def network(is_wide):
    width = 160 if is_wide else 4
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Linear(width, 1))


def train(folder, failure, is_wide):
    torch.manual_seed(0)
    saving = ts.Saving(every_steps=1, every_seconds=None, background=False)
    run = ts.Run(folder, progress=False, quiet=True, doctor=False, saving=saving)
    net = run.learner(network(is_wide), lambda p: Step(p, lr=1e-3, momentum=0.9), name="net")
    rows = run.data(torch.randn(16, 3), batch_size=4, shuffle=True)
    failing = failure and Failing(failure, run)
    tell = failing.come_to if failing else (lambda place: None)
    Step.tell = staticmethod(tell)

    def loss(part):
        tell("in the loss")
        found = net(part)
        found.register_hook(lambda gradient: tell("in the backward"))
        return found.square().mean(1)

    for _ in run.epochs(2):
        for batch in run.batches(rows):
            if failing:
                failing.update_begins()
            net.update(loss, batch)
            if failing:
                failing.in_update = False
    print(sum(int(each.detach().view(torch.int32).long().sum()) for each in net.parameters()))


if __name__ == "__main__":
    # so that an update of the wide one is three messages
    first_message.MOST_BYTES, buckets.BUCKET_BYTES = 1 << 16, 1 << 15
    folder, seed, wide = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "True"
    train(folder, None if seed == "-" else draw(int(seed)), wide)
