# SPDX-License-Identifier: Apache-2.0
"""A loop that updates with every fourth batch, as one does whose gradients add up, is told that the others go unused."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

WORDS = "are never trained on"


class Training:
    def __init__(self, folder, num=160, **options):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False)
        self.net = self.run.learner(nn.Linear(3, 2), lambda p: torch.optim.SGD(p, lr=0.1), **options)
        self.data = self.run.data((torch.randn(num, 3), torch.zeros(num, dtype=torch.long)), batch_size=8)

    def loss(self, batch):
        x, y = batch
        return F.cross_entropy(self.net(x), y, reduction="none")

    def update(self, batch):
        self.net.update(self.loss, batch)


def plain(t):
    for i, batch in enumerate(t.run.batches(t.data)):
        if (i + 1) % 4 == 0:
            t.update(batch)


def taken_apart(t):
    for i, (x, y) in enumerate(t.run.batches(t.data), start=1):
        if i % 4 == 0:
            t.update((x, y))


def every_second_from_the_first(t):
    for i, batch in enumerate(t.run.batches(t.data)):
        if i % 2 == 0:
            t.update(batch)


def by_the_step(t):
    for batch in t.run.batches(t.data):
        if t.run.step % 3:
            continue
        t.update(batch)


def or_the_last(t):
    batches = t.run.batches(t.data)
    for i, batch in enumerate(batches):
        if (i + 1) % 8 == 0 or i + 1 == 20:
            t.update(batch)


class Trainer:
    def __init__(self, training):
        self.training, self.waiting = training, 3

    def step(self, x, y):
        self.waiting, due = (self.waiting - 1, False) if self.waiting else (3, True)
        if due:
            self.training.update((x, y))


def counted_by_an_object(t):
    trainer = Trainer(t)
    for x, y in t.run.batches(t.data):
        trainer.step(x, y)


@pytest.mark.parametrize(
    "body",
    [plain, taken_apart, every_second_from_the_first, by_the_step, or_the_last, counted_by_an_object],
    ids=lambda f: f.__name__,
)
def test_batches_that_no_update_is_given_are_named_once(tmp_path, capsys, body):
    training = Training(tmp_path / "run")
    for _ in training.run.epochs(4):
        body(training)
    said = capsys.readouterr().err
    assert said.count(WORDS) == 1
    assert "micro_batch=8)" in said


def put_together(t):
    parts = []
    for batch in t.run.batches(t.data):
        parts.append(batch)
        if len(parts) == 4:
            t.update(tuple(map(torch.cat, zip(*parts, strict=True))))
            parts = []


def from_a_memory(t):
    memory = []
    for i, (x, y) in enumerate(t.run.batches(t.data)):
        memory += zip(x, y, strict=True)
        if i % 4 == 3:
            xs, ys = zip(*random.Random(i).sample(memory, 8), strict=True)
            t.update((torch.stack(xs), torch.stack(ys)))


def held_out(t):
    for i, batch in enumerate(t.run.batches(t.data)):
        if i % 5:
            t.update(batch)


def by_chance(t):
    draws = random.Random(0)
    for batch in t.run.batches(t.data):
        if draws.random() < 0.5:
            t.update(batch)


def all_of_them(t):
    for batch in t.run.batches(t.data):
        t.update(batch)


def parts_one_by_one(t):
    batches = iter(t.run.batches(t.data))
    for first in batches:
        with t.net.accumulating() as update:
            update.backward(t.loss(first))
            for _ in range(3):
                update.backward(t.loss(next(batches)))


@pytest.mark.parametrize(
    "body",
    [put_together, from_a_memory, held_out, by_chance, all_of_them, parts_one_by_one],
    ids=lambda f: f.__name__,
)
def test_nothing_is_said_where_the_batches_are_used(tmp_path, capsys, body):
    training = Training(tmp_path / "run")
    for _ in training.run.epochs(4):
        body(training)
    assert WORDS not in capsys.readouterr().err


def test_nothing_is_said_of_a_late_start(tmp_path, capsys):
    training = Training(tmp_path / "run", starts_at=30)
    for _ in training.run.epochs(4):
        all_of_them(training)
    assert WORDS not in capsys.readouterr().err
