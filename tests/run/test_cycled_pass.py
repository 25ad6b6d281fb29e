# SPDX-License-Identifier: Apache-2.0
"""Batches that itertools.cycle would keep and give again are refused before the first; what `limit=` reads on and on goes on."""

import itertools
from itertools import cycle, islice
from itertools import cycle as round_and_round

import pytest
import torch
from torch import nn

import truestep as ts

MORE = [0.1, 0.2]


def again_and_again(batches):
    """Give batches round and round, as a helper of the user's does."""
    return cycle(batches)


CYCLED = {
    "module": lambda few, large: zip(itertools.cycle(few), large, strict=False),
    "name": lambda few, large: zip(cycle(few), large, strict=False),
    "another name": lambda few, large: zip(large, round_and_round(few), strict=False),
    "helper": lambda few, large: zip(large, again_and_again(few), strict=False),
    "pairs": lambda few, large: islice(cycle(zip(few, large, strict=False)), 6),
    "numbered": lambda few, large: enumerate(islice(cycle(few), 6)),
    "within": lambda few, large: zip(cycle(enumerate(map(torch.neg, few))), large, strict=False),
}
NOT_CYCLED = {
    "beside rates": lambda few, large: zip(cycle(MORE), few, strict=False),
    "not asked": lambda few, large: zip(few, large, cycle(MORE), strict=False),
    "kept first": lambda few, large: islice(cycle([*few]), 6),
}


@pytest.fixture
def passes(tmp_path):
    with ts.Run(tmp_path / "run", progress=False, quiet=True, doctor=False) as run:
        model = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        few, large = run.data(torch.ones(4, 2), batch_size=2), run.data(torch.ones(8, 2), batch_size=2)
        yield run, model, few, large


def train(run, model, batches):
    for _ in run.epochs(1):
        for batch in batches():
            model.update(lambda rows: model(rows).mean(1), batch)


@pytest.mark.parametrize("way", CYCLED)
def test_batches_that_are_kept_and_given_again_are_refused(passes, way):
    run, model, few, large = passes
    with pytest.raises(ts.OptionError, match=r"cycle keeps .*run\.batches\(few, limit=len\(loader\)\)"):
        train(run, model, lambda: CYCLED[way](run.batches(few), run.batches(large)))
    assert run.step == (1 if way in ("another name", "helper") else 0)  # there the other pass is asked first


@pytest.mark.parametrize("way", NOT_CYCLED)
def test_what_is_not_kept_is_given_out(passes, way):
    run, _, few, large = passes
    given = 0
    for _ in run.epochs(1):
        for _ in NOT_CYCLED[way](run.batches(few), run.batches(large)):
            given += 1
    assert given == (6 if way == "kept first" else 2)


def test_what_the_line_says_works(passes):
    run, model, few, loader = passes
    for _ in run.epochs(2):
        for batch, _ in zip(run.batches(few, limit=len(loader)), run.batches(loader), strict=True):
            model.update(lambda rows: model(rows).mean(1), batch)
    assert run.step == 8
