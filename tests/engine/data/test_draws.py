# SPDX-License-Identifier: Apache-2.0
"""Weighted draws: as often as the weights say, position by position."""

import hashlib
import tracemalloc

import numpy as np
import pytest
import torch

from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source, per_sample_numbers
from truestep.engine.data.order_construction import choose_batch_order, describe_data_options
from truestep.engine.data.per_sample_numbers import SampleNumbers
from truestep.engine.data.sample_draws import WeightedSamples


def test_samples_come_as_often_as_their_weights_say():
    weights = np.array([0, 1, 2, 0, 5, 0.5, 0])
    drawn = WeightedSamples(SampleNumbers("weights", weights), seed=3).indices(0, np.arange(85_000))
    expected = 85_000 * weights / weights.sum()
    counts = np.bincount(drawn, minlength=7)
    assert counts[weights == 0].tolist() == [0, 0, 0]
    assert (abs(counts - expected) <= 5 * np.sqrt(expected)).all()


def test_draws_are_independent_of_each_other_and_of_the_epoch():
    draw = WeightedSamples(SampleNumbers("weights", np.ones(10)), seed=0)
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


def kinds_of_numbers(values, folder):
    """The same numbers in every form that people have them in."""
    mapped = np.memmap(folder / "weights.bin", dtype=np.float32, mode="w+", shape=len(values))
    mapped[:] = values
    return {
        "list": values,
        "float64": np.array(values),
        "float32": np.array(values, dtype=np.float32),
        "mapped from a file": mapped,
        "tensor": torch.tensor(values),
        "bfloat16": torch.tensor(values).bfloat16(),
        "with a gradient": torch.tensor(values, requires_grad=True),
        "every other": np.repeat(values, 2)[::2],
    }


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_numbers_read_in_pieces_draw_what_they_draw_at_once(piece, monkeypatch, tmp_path):
    values = np.random.default_rng(1).integers(0, 9, 100) / 4  # exact in every form
    sums = np.cumsum(values)
    monkeypatch.setattr(per_sample_numbers, "PIECE", piece)
    digests = set()
    for kind, given in kinds_of_numbers(values.tolist(), tmp_path).items():
        read = SampleNumbers("weights", given).check_one_per_sample(100)
        draw = WeightedSamples(read, seed=5)
        assert draw._cumulative.tolist() == sums.tolist(), kind
        digests.add(read.digest())
        assert draw.indices(0, np.arange(50)).max() <= np.flatnonzero(values)[-1]
    assert digests == {hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()}


def test_sums_of_weights_are_those_of_one_sum_to_the_last_bit(monkeypatch):
    values = np.random.default_rng(2).random(1000)
    monkeypatch.setattr(per_sample_numbers, "PIECE", 64)
    assert (
        WeightedSamples(SampleNumbers("weights", values), 0)._cumulative.tolist()
        == np.cumsum(values).tolist()
    )


def test_weights_take_eight_bytes_a_sample_beyond_what_was_given():
    weights = np.ones(6_000_000, dtype=np.float32)
    options = DataOptions(batch_size=4, weights=weights)
    tracemalloc.start()
    try:
        describe_data_options(options)
        choose_batch_order(len(weights), options, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(weights) + (40 << 20)
