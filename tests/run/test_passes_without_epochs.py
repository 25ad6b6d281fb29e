# SPDX-License-Identifier: Apache-2.0
"""Loops of a user's own around run.batches, which count no epochs, and loops that a statement asks for and nobody goes through."""

import itertools

import pytest
import torch
from torch import nn

import truestep as ts

TOLD = "only run.epochs counts epochs"


class Training:
    def __init__(self, folder):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False, watch_layers=0)
        self.net = self.run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        self.data = self.run.data(torch.ones(4, 2), batch_size=2)
        self.num_epochs = 3

    def body(self):
        for batch in self.run.batches(self.data):
            self.net.update(lambda rows: self.net(rows)[:, 0].square(), batch)


def in_a_range(t):
    for _ in range(3):
        for batch in t.run.batches(t.data):
            t.net.update(lambda rows: t.net(rows)[:, 0].square(), batch)


def from_one(t):
    for _ in range(1, t.num_epochs + 1):
        t.body()


def by_a_method(t):
    for _ in range(t.num_epochs):
        t.body()


def counted(t):
    epoch = 0
    while epoch < 3:
        t.body()
        epoch += 1


def without_end(t):
    for epoch in itertools.count():
        t.body()
        if epoch >= 2:
            break


FAULTY = [in_a_range, from_one, by_a_method, counted, without_end]


def in_epochs(t):
    for _ in t.run.epochs(3):
        t.body()


def twice_an_epoch(t):
    for _ in t.run.epochs(2):
        for _ in range(2):
            t.body()


def one_behind_the_other(t):
    t.body()
    t.body()


def to_a_step(t):
    while t.run.step < 5:
        for batch in t.run.batches(t.data):
            t.net.update(lambda rows: t.net(rows)[:, 0].square(), batch)
            if t.run.step == 5:
                break


def some_of_it(t):
    for _ in range(2):
        for batch in t.run.batches(t.data, limit=1):
            t.net.update(lambda rows: t.net(rows)[:, 0].square(), batch)


def until_it_is_good(t):
    value = 10.0
    while value > 0.1:
        t.body()
        value = value / 10


def other_data(t):
    for size in (1, 2):
        for batch in t.run.batches(t.run.data(torch.ones(4, 2), batch_size=size)):
            t.net.update(lambda rows: t.net(rows)[:, 0].square(), batch)


RIGHT = [in_epochs, twice_an_epoch, one_behind_the_other, to_a_step, some_of_it, until_it_is_good, other_data]


@pytest.mark.parametrize("train", FAULTY)
def test_a_loop_that_counts_passes_itself_is_told_that_nothing_counts_epochs(tmp_path, capsys, train):
    train(Training(tmp_path))
    assert capsys.readouterr().err.count(TOLD) == 1


@pytest.mark.parametrize("train", RIGHT)
def test_other_passes_are_not(tmp_path, capsys, train):
    train(Training(tmp_path))
    assert TOLD not in capsys.readouterr().err


def test_a_loop_without_a_body_is_refused(tmp_path):
    t = Training(tmp_path)
    with pytest.raises(ts.OptionError, match=r"no body runs\. Write for step in run\.steps\(100\):"):
        t.run.steps(100)
    with pytest.raises(ts.OptionError, match=r"no body runs\. Write for epoch in run\.epochs\(3\):"):
        t.run.epochs(3)
    with pytest.raises(ts.OptionError, match=r"no body runs\. Write for batch in run\.batches\(source\):"):
        t.run.batches(t.data)
    t.run.close()
