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


@pytest.mark.sliced(2)
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


class Stopped(Exception):
    pass


def wrapped(loop):
    yield from loop


def raise_in_body(cells, at, wrap=iter):
    for _ in wrap(cells.run.epochs(EPOCHS)):
        for rows in cells.run.batches(cells.source):
            cells.update(rows, None)
            if cells.run.step == at:
                raise Stopped


def raise_before_batch(cells):
    for _ in cells.run.epochs(EPOCHS):
        raise Stopped


def raise_in_loss(cells, at):
    def loss(rows):
        if cells.run.step == at:
            raise Stopped
        return cells.net(rows).squeeze(1).square()

    for _ in cells.run.epochs(EPOCHS):
        for rows in cells.run.batches(cells.source):
            cells.net.update(loss, rows)


def raise_behind_pass(cells, at):
    for epoch in cells.run.epochs(EPOCHS):
        for rows in cells.run.batches(cells.source):
            cells.update(rows, None)
        if epoch == at - 1:
            raise Stopped
        for rows in cells.run.batches(cells.second):
            cells.update(rows, None)


def exit_in_body(cells, at):
    for _ in cells.run.epochs(EPOCHS):
        for rows in cells.run.batches(cells.source):
            cells.update(rows, None)
            if cells.run.step == at:
                sys.exit(3)


def raise_through_wrapper(cells, at):
    raise_in_body(cells, at, wrapped)


WAYS = [raise_in_body, raise_in_loss, raise_behind_pass, exit_in_body, raise_through_wrapper]


@pytest.mark.sliced(4)
@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_shell", [True, False], ids=["shell", "script"])
def test_epochs_that_an_exception_ended_are_refused_and_a_new_run_goes_on(
    tmp_path, monkeypatch, way, at, is_shell
):
    if is_shell:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    whole = Cells(tmp_path / "whole")
    whole.loop()
    cells = Cells(tmp_path / "run")
    with pytest.raises((Stopped, SystemExit)):
        way(cells, at)
    before = cells.weights()
    for _ in range(2):
        with pytest.raises(ts.OptionError, match=r"within epoch .* Make the run again.* newest checkpoint"):
            cells.loop()
    assert torch.equal(cells.weights(), before)
    again = Cells(tmp_path / "run")
    again.loop()
    assert again.run.step == EPOCHS * (BATCHES + 2)
    assert torch.equal(again.weights(), whole.weights())


def test_epochs_that_ended_before_a_batch_or_by_break_and_errors_that_a_body_catches_go_on(tmp_path):
    whole = Cells(tmp_path / "whole")
    whole.loop()
    cells = Cells(tmp_path / "run")
    with pytest.raises(Stopped):
        raise_before_batch(cells)
    for _ in cells.run.epochs(EPOCHS):
        try:
            for rows in cells.run.batches(cells.source):
                cells.update(rows, None)
            raise Stopped
        except Stopped:
            for rows in cells.run.batches(cells.second):
                cells.update(rows, None)
    assert torch.equal(cells.weights(), whole.weights())
    other = Cells(tmp_path / "other")
    for _ in other.run.epochs(EPOCHS):
        for rows in other.run.batches(other.source):
            other.update(rows, None)
        break
    other.loop()
