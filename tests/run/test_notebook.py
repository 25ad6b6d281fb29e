# SPDX-License-Identifier: Apache-2.0
"""A cell that was interrupted and runs again goes on in the same process, with the run and the net of another cell."""

import os
import signal
import sys

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.arange(32.0).reshape(16, 2) / 32
EPOCHS, BATCHES = 3, 4


class Cells:
    """The first cell: a run, a net and data; `loop` is the second."""

    def __init__(self, directory):
        self.run = ts.Run(directory, seed=0, progress=False, quiet=True, doctor=False)
        self.net = self.run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        self.source = self.run.data(ROWS, batch_size=4, shuffle=True)
        self.second = self.run.data(ROWS[:8], batch_size=4, shuffle=True)
        self.steps = []

    def update(self, rows, stop):
        self.net.update(lambda x: self.net(x).squeeze(1).square(), rows)
        self.steps.append((self.run.epoch, self.run.step))
        if self.run.step == stop:
            os.kill(os.getpid(), signal.SIGINT)

    def loop(self, stop=None):
        for _ in self.run.epochs(EPOCHS):
            for rows in self.run.batches(self.source):
                self.update(rows, stop)
            for rows in self.run.batches(self.second):
                self.update(rows, stop)

    def weights(self):
        return self.net.weight.detach().clone()


@pytest.fixture
def interactive(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)


@pytest.mark.parametrize("stops", [[2], [2, 3], [4], [5, 6, 7], [1, 9, 18]])
@pytest.mark.parametrize("held", [True, False], ids=["traceback held", "let go"])
def test_a_loop_that_is_run_again_after_an_interrupt_goes_on(tmp_path, interactive, stops, held):
    whole = Cells(tmp_path / "whole")
    whole.loop()
    cells, kept = Cells(tmp_path / "run"), []
    for stop in stops:
        with pytest.raises(KeyboardInterrupt) as stopped:
            cells.loop(stop)
        if held:
            kept.append(stopped)
    cells.loop()
    assert cells.steps == whole.steps
    assert torch.equal(cells.weights(), whole.weights())


def test_a_single_pass_that_is_run_again_goes_on_however_many_were_before_it(tmp_path, interactive):
    cells = Cells(tmp_path / "run")

    def one_pass(stop=None):
        for rows in cells.run.batches(cells.source):
            cells.update(rows, stop)

    one_pass()
    with pytest.raises(KeyboardInterrupt):
        one_pass(stop=6)
    one_pass()
    assert [step for _, step in cells.steps] == list(range(1, 9))
    cells.run.close()
