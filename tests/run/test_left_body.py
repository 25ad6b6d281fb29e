# SPDX-License-Identifier: Apache-2.0
"""A body that an exception left, which somebody caught: it is done again, and said so, where it had still something to do."""

import contextlib
import itertools
import signal
import sys

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.checkpoints.listing import checkpoint_overview

POINTS = torch.ones(20, 4)
EPOCHS, BATCHES = 2, 5


class Stop(Exception):
    """How people leave several loops."""


def wrapped(iterable):
    for item in iterable:  # noqa: UP028  (a loop, as helpers write it)
        yield item


class Counting:
    """A training whose body goes on behind its update, and is interrupted there once."""

    def __init__(self, directory, fails_at=None):
        saving = ts.Saving(every_steps=2, background=False)
        self.run = ts.Run(directory, progress=False, doctor=False, saving=saving)
        torch.manual_seed(0)
        self.net = self.run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        self.source = self.run.data(POINTS, batch_size=4)
        self.fails_at, self.steps, self.run.state["seen"] = fails_at, [], 0

    def update(self, batch):
        self.net.update(lambda b: self.net(b).squeeze(1).square(), batch)
        self.steps.append(self.run.step)
        if self.run.step == self.fails_at:
            raise KeyboardInterrupt
        self.run.state["seen"] += 1

    def body(self, wrap=iter):
        for batch in wrap(self.run.batches(self.source)):
            self.update(batch)

    def go(self, wrap=iter):
        for _ in self.run.epochs(EPOCHS):
            self.body(wrap)

    def by_steps(self):
        for _ in self.run.steps(EPOCHS * BATCHES):
            self.update(POINTS[:4])


def caught_at_the_end(training, go):
    with contextlib.suppress(KeyboardInterrupt):
        go()
    training.run.session.end.endings._process_ends()


def caught_and_run_closed(training, go):
    try:
        go()
    except KeyboardInterrupt:
        assert training.fails_at
    finally:
        training.run.close()


def caught_in_a_with_block(training, go):
    with training.run, contextlib.suppress(KeyboardInterrupt):
        go()


def caught_and_logged(training, go):
    with contextlib.suppress(KeyboardInterrupt):
        go()
    training.run.log(last=1.0)
    training.run.close()


def caught_and_evaluated(training, go):
    with contextlib.suppress(KeyboardInterrupt):
        go()
    training.net.evaluate(lambda b: training.net(b).sum(1), [POINTS])
    training.run.close()


def caught_and_made_again(training, go):
    with contextlib.suppress(KeyboardInterrupt):
        go()


def caught_and_dropped(training, go):
    with contextlib.suppress(KeyboardInterrupt):
        go()
    training.run.session.end.endings.dropped()


def caught_within_the_epoch(training, _):
    for _ in training.run.epochs(EPOCHS):
        try:
            training.body()
        except KeyboardInterrupt:
            break
    training.run.close()


CAUGHT = [
    caught_at_the_end,
    caught_and_run_closed,
    caught_in_a_with_block,
    caught_and_logged,
    caught_and_evaluated,
    caught_and_made_again,
    caught_and_dropped,
]
LOOPS = [Counting.go, lambda training: training.go(wrapped), Counting.by_steps]


PAIRS = [*itertools.product(CAUGHT, LOOPS), (caught_within_the_epoch, Counting.go)]


@pytest.mark.sliced(3)
@pytest.mark.parametrize(("way", "loop"), PAIRS)
def test_a_body_whose_interrupt_is_caught_is_done_again_and_said_to_be(tmp_path, capsys, way, loop):
    failed = Counting(tmp_path / "run", fails_at=4)
    way(failed, lambda: loop(failed))
    again = Counting(tmp_path / "run")
    loop(again)
    assert "KeyboardInterrupt" in capsys.readouterr().err
    assert (again.steps[0], again.run.step, again.run.state["seen"]) == (3, 10, 10)


def stopped_by_raise(training):
    for _ in training.run.epochs(EPOCHS):
        for batch in training.run.batches(training.source):
            training.update(batch)
            if training.run.step == 4:
                raise Stop


def stopped_in_what_is_called(training):
    def look():
        if training.run.step == 4:
            raise Stop

    for batch in training.run.batches(training.source):
        training.update(batch)
        try:
            training.seen = batch
        finally:
            with contextlib.nullcontext():
                look()


def stopped_by_exit(training):
    for batch in training.run.batches(training.source):
        if training.run.step == 4:
            sys.exit(0)
        training.update(batch)


def stopped_by_break(training):
    for batch in training.run.batches(training.source):
        training.update(batch)
        if training.run.step == 4:
            break
        training.seen = batch


def stopped_for_good(training):
    try:
        training.fails_at = 4
        training.go()
    except KeyboardInterrupt:
        training.run.finish()


@pytest.mark.parametrize(
    "way",
    [stopped_by_raise, stopped_in_what_is_called, stopped_by_exit, stopped_by_break, stopped_for_good],
)
def test_a_body_that_was_left_as_it_was_meant_counts(tmp_path, capsys, way):
    training = Counting(tmp_path / "run")
    with contextlib.suppress(Stop, SystemExit):
        way(training)
    training.run.close()
    newest = checkpoint_overview(tmp_path / "run")[0]
    assert (newest.step, newest.summary.complete) == (4, True)
    assert "left the body" not in capsys.readouterr().err


def test_an_epoch_that_goes_on_without_the_rest_of_a_pass_counts(tmp_path, capsys):
    training = Counting(tmp_path / "run", fails_at=4)
    for _ in training.run.epochs(EPOCHS):
        with contextlib.suppress(KeyboardInterrupt):
            training.body()
    training.run.close()
    assert checkpoint_overview(tmp_path / "run")[0].summary.complete
    assert "left the body" not in capsys.readouterr().err


@pytest.mark.parametrize("signals", [1, 2])
def test_a_second_signal_that_a_body_catches_leaves_that_body_to_be_done_again(tmp_path, capsys, signals):
    class Asked(Counting):
        def update(self, batch):
            with contextlib.suppress(KeyboardInterrupt):
                for _ in range(signals * (self.run.step == 3)):
                    signal.raise_signal(signal.SIGINT)
                super().update(batch)

    stopped = Asked(tmp_path / "run")
    with pytest.raises(SystemExit):
        stopped.go()
    again = Counting(tmp_path / "run")
    again.go()
    assert (again.steps[0], again.run.state["seen"]) == ({1: 4, 2: 3}[signals], 10)
    assert ("a second signal came" in capsys.readouterr().err) is (signals == 2)
