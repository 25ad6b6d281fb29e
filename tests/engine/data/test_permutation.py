# SPDX-License-Identifier: Apache-2.0
"""The keyed permutation is one, at any size and from any position, and looks drawn at random."""

import tracemalloc
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.engine.data.permutation import SMALL, SamplePermutation

SIZES = [1, 2, 3, 4, 5, 16, 255, SMALL, SMALL + 1, 4225, 5000, 65_536, 100_003]


def looks_uniform(counts):
    """Chi-squared against equal counts, five standard deviations wide; the keys are fixed, so no flake."""
    counts = np.asarray(counts, dtype=float)
    expected, freedom = counts.mean(), counts.size - 1
    return ((counts - expected) ** 2 / expected).sum() < freedom + 5 * np.sqrt(2 * freedom)


def firsts(size, keys, positions=(0,)):
    return np.array([SamplePermutation(size, key)(np.array(positions)) for key in range(keys)])


@pytest.mark.parametrize("size", SIZES)
def test_every_item_comes_once(size):
    assert np.arange(size).tolist() == sorted(SamplePermutation(size, 7)(np.arange(size)).tolist())


@given(size=st.integers(1, 10**15), key=st.integers(0, 2**64 - 1), data=st.data())
def test_any_positions_of_any_size_give_other_items_of_that_size(size, key, data):
    positions = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=50))))
    permutation = SamplePermutation(size, key)
    items = permutation(positions)
    assert len(positions) == len(set(items.tolist()))
    assert 0 <= items.min() <= items.max() < size
    assert items.tolist() == [int(permutation(positions[i : i + 1])[0]) for i in range(len(positions))]


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_a_small_size_takes_every_permutation_equally_often(size):
    seen = dict.fromkeys(permutations(range(size)), 0)
    for key in range(max(5000, 100 * len(seen))):
        seen[tuple(SamplePermutation(size, key)(np.arange(size)).tolist())] += 1
    assert looks_uniform(list(seen.values()))


@pytest.mark.sliced(4)
@pytest.mark.parametrize("size", [100, SMALL, SMALL + 1, 65_536, 10**12])
def test_items_pairs_and_differences_are_uniform_over_keys(size):
    first, second, last = firsts(size, 4000, (0, 1, size - 1)).T
    bins = 20
    for items in (first, second, last):
        assert looks_uniform(np.bincount(items * bins // size, minlength=bins))
    for one, other in ((first, second), (first, last)):
        grid = np.bincount((one * 8 // size) * 8 + other * 8 // size, minlength=64)
        assert looks_uniform(grid) or size == 100  # 100 items without replacement are not independent
        assert (
            looks_uniform(np.bincount(((one - other) % size) * bins // size, minlength=bins)) or size == 100
        )
        assert looks_uniform(np.bincount((one < other).astype(int), minlength=2))


@pytest.mark.parametrize("size", [SMALL, SMALL + 1, 50_000])
def test_within_one_permutation_neighbours_are_unrelated(size):
    for key in range(20):
        items = SamplePermutation(size, key)(np.arange(size))
        assert looks_uniform(np.bincount((np.diff(items) % size) * 50 // size, minlength=50))
        half = items[: size // 2]
        assert looks_uniform(np.bincount(half * 50 // size, minlength=50))
        assert abs(np.corrcoef(items, np.arange(size))[0, 1]) < 5 / np.sqrt(size)


def test_fixed_points_are_as_rare_as_in_random_permutations():
    counts = [
        int((SamplePermutation(5000, key)(np.arange(5000)) == np.arange(5000)).sum()) for key in range(300)
    ]
    assert abs(np.mean(counts) - 1) < 5 / np.sqrt(300)


def test_neighbouring_keys_give_unrelated_permutations():
    for key in range(20):
        one, other = (SamplePermutation(5000, k)(np.arange(5000)) for k in (key, key + 1))
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(5000)


def test_memory_does_not_grow_with_the_size():
    positions = np.arange(10**11, 10**11 + 512)
    tracemalloc.start()
    SamplePermutation(10**12, 3)(positions)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def test_orders_never_change_between_versions():
    """A run that is resumed with a newer version must go on in the same order."""
    assert SamplePermutation(10, 1)(np.arange(10)).tolist() == [9, 5, 3, 6, 1, 0, 8, 7, 4, 2]
    assert SamplePermutation(10**12, 1)(np.arange(3)).tolist() == [867675974970, 152170607529, 338557890345]
