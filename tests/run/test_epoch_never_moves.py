# SPDX-License-Identifier: Apache-2.0
"""A loop that waits for `run.epoch` where no loop over run.epochs counts it is refused before it trains for ever."""

import pytest
import torch
from torch import nn

import truestep as ts


class EndlessError(Exception):
    """It has trained for far too long."""


class Training:
    def __init__(self, folder):
        self.run = ts.Run(folder, device="cpu", progress=False, doctor=False, watch_layers=0)
        self.net = self.run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        self.data = self.run.data(torch.ones(16, 2), batch_size=8)
        self.bodies = 0

    def one_pass(self):
        for batch in self.run.batches(self.data):
            self.net.update(lambda batch: self.net(batch)[:, 0].square(), batch)
            self.bodies += 1
            if self.bodies > 20:
                raise EndlessError


def condition(training):
    while training.run.epoch < 3:
        training.one_pass()


def turned_round(training):
    while not training.run.epoch >= 3:
        training.one_pass()


def left_at_its_top(training):
    while True:
        if training.run.epoch >= 3:
            break
        training.one_pass()


def left_at_its_end(training):
    while True:
        training.one_pass()
        if training.run.epoch == 3:
            return


def variable(training):
    epoch = 0
    while epoch < 3:
        training.one_pass()
        epoch = training.run.epoch


def on_several_lines(training):
    run, most = training.run, 3
    while (
        run.epoch
        < most
    ):  # fmt: skip
        training.one_pass()


def shown(training):
    while training.run.epoch + 1 <= 3:
        training.run.log(epoch=training.run.epoch)
        training.one_pass()


def epochs(training):
    for _ in training.run.epochs(3):
        training.one_pass()


def counted(training):
    epoch = training.run.epoch
    while epoch < 3:
        training.one_pass()
        epoch += 1


def numbers(training):
    for _ in range(training.run.epoch, 3):
        training.one_pass()


def steps(training):
    while training.run.step < 6:
        training.run.log(epoch=training.run.epoch)
        training.one_pass()


def within_epochs(training):
    for _ in training.run.epochs(3):
        done = False
        while training.run.epoch < 3 and not done:
            training.one_pass()
            done = True


FAULTY = [
    condition,
    turned_round,
    left_at_its_top,
    left_at_its_end,
    variable,
    on_several_lines,
    shown,
]
RIGHT = [epochs, counted, numbers, steps, within_epochs]


@pytest.mark.parametrize("train", FAULTY)
def test_a_loop_that_never_ends_is_refused(tmp_path, train):
    training = Training(tmp_path)
    with pytest.raises(ts.OptionError, match=r"never ends\. Write for epoch in run\.epochs\("):
        train(training)
    assert training.bodies <= 2


@pytest.mark.parametrize("train", RIGHT)
def test_a_loop_that_ends_is_as_it_was(tmp_path, train):
    training = Training(tmp_path)
    train(training)
    assert training.bodies == 6
