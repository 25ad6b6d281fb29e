# SPDX-License-Identifier: Apache-2.0
"""Weighted draws: as often as the weights say, position by position."""

import numpy as np
import pytest
import torch

from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source
from truestep.engine.data.draws import WeightedSamples


def test_samples_come_as_often_as_their_weights_say():
    weights = np.array([0, 1, 2, 0, 5, 0.5, 0])
    drawn = WeightedSamples(weights, seed=3).indices(0, np.arange(85_000))
    expected = 85_000 * weights / weights.sum()
    counts = np.bincount(drawn, minlength=7)
    assert counts[weights == 0].tolist() == [0, 0, 0]
    assert (abs(counts - expected) <= 5 * np.sqrt(expected)).all()


def test_draws_are_independent_of_each_other_and_of_the_epoch():
    draw = WeightedSamples(np.ones(10), seed=0)
    one, other = draw.indices(0, np.arange(20_000)), draw.indices(1, np.arange(20_000))
    for a, b in ((one[:-1], one[1:]), (one, other)):
        counts = np.bincount(a * 10 + b, minlength=100)
        assert ((counts - len(a) / 100) ** 2 / (len(a) / 100)).sum() < 99 + 5 * np.sqrt(198)


def test_an_epoch_draws_as_many_as_asked_and_can_be_entered_anywhere():
    options = DataOptions(batch_size=4, weights=torch.tensor([1.0, 3.0, 0.0]), num_samples=50)
    order = [b.tolist() for b in open_source(torch.arange(3), options, seed=1).batches(2)]
    assert [len(batch) for batch in order] == [4] * 12 + [2]
    again = open_source(torch.arange(3), options, seed=1)
    assert order[7:] == [b.tolist() for b in again.batches(2, 7)]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, 2], "has shape (2,) and the data has 3 samples"),
        ([1, -1, 2], "weights[1] is -1"),
        ([1, 2, float("nan")], "weights[2] is nan"),
        ([1, float("inf"), 1], "weights[1] is inf"),
        ([0, 0, 0], "all 3 weights are 0"),
        ("abc", "must be numbers"),
        (torch.ones(3, 1), "shape (3, 1)"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, words):
    with pytest.raises(DataError) as caught:
        open_source(torch.arange(3), DataOptions(batch_size=2, weights=weights), seed=0)
    assert words in str(caught.value)
