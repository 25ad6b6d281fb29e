# SPDX-License-Identifier: Apache-2.0
"""A source that is exhausted beside a longer one stays so when the run goes on."""

import itertools
import os
import signal

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.arange(40.0).reshape(20, 2) / 40


def longest(first, second):
    yield from itertools.zip_longest(first(), second())


def nested(first, second):
    for rows in first():
        yield rows, None
        for others in second():
            yield None, others


def cycled(first, second):
    reading = second()
    for rows in first():
        others = next(reading, None)
        if others is None:
            reading = second()
            others = next(reading)
        yield rows, others


@pytest.mark.sliced(3)
@pytest.mark.parametrize("order", [longest, nested, cycled])
def test_a_shorter_source_beside_a_longer_one_resumes(tmp_path, order):
    def go(directory, stop=None):
        with ts.Run(directory, seed=0, progress=False, quiet=True, doctor=False) as run:
            net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
            first = run.data(ROWS, batch_size=4, shuffle=True)
            second = run.data(ROWS[:12], batch_size=6, shuffle=True)
            for _ in run.epochs(2):
                for pair in order(lambda: run.batches(first), lambda: run.batches(second)):
                    for rows in pair:
                        if rows is not None:
                            net.update(lambda x: net(x).squeeze(1).square(), rows)
                    if run.step == stop:
                        stop = None
                        os.kill(os.getpid(), signal.SIGTERM)
            return net.weight.detach().clone()

    whole = go(tmp_path / "whole")
    for stop in range(1, 11):
        with pytest.raises(SystemExit):
            go(tmp_path / str(stop), stop)
        assert torch.equal(go(tmp_path / str(stop)), whole), stop
