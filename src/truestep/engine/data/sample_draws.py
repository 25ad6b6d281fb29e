# SPDX-License-Identifier: Apache-2.0
"""Draws: which sample stands at a position of an epoch, computed there and nowhere before."""

from typing import Protocol

import numpy as np

from truestep.engine.data.keys import derive_sample_key, sample_keys_at, uniform_from_sample_keys
from truestep.engine.data.per_sample_numbers import SampleNumbers
from truestep.engine.data.permutation import Indices, SamplePermutation


class SampleIndices(Protocol):
    """Gives the samples at any positions of any epoch."""

    def indices(self, epoch: int, positions: Indices) -> Indices:
        """Return the indices into the data of the samples at `positions`."""
        ...


class SequentialSamples:
    """The samples as they stand in the data, every epoch alike."""

    def indices(self, epoch: int, positions: Indices) -> Indices:
        """Return the indices into the data of the samples at `positions`."""
        return positions


class ShuffledSamples:
    """Every sample once an epoch, each epoch in another order; O(1) in time and memory."""

    def __init__(self, num_samples: int, seed: int) -> None:
        self._num_samples, self._seed = num_samples, seed
        self._latest: tuple[int, SamplePermutation] | None = None

    def indices(self, epoch: int, positions: Indices) -> Indices:
        """Return the indices into the data of the samples at `positions`."""
        if self._latest is None or self._latest[0] != epoch:
            key = derive_sample_key(self._seed, "order", epoch)
            self._latest = epoch, SamplePermutation(self._num_samples, key)
        return self._latest[1](positions)


class WeightedSamples:
    """Samples drawn with replacement, each as often as its weight says; position by position."""

    def __init__(self, weights: SampleNumbers, seed: int) -> None:
        """Keep eight bytes a sample: the sum of all weights up to it."""
        self._seed, self._last = seed, 0
        self._cumulative = np.empty(weights.shape[0])
        before = 0.0
        for start, piece in weights.pieces():
            sums = self._cumulative[start : start + len(piece)]
            sums[:] = piece
            sums[0] += before
            np.cumsum(sums, out=sums)
            before = float(sums[-1])
            if (positive := np.flatnonzero(piece)).size:
                self._last = start + int(positive[-1])

    def indices(self, epoch: int, positions: Indices) -> Indices:
        """Return the indices into the data of the samples at `positions`; O(log n) each."""
        key = derive_sample_key(self._seed, "weighted order", epoch)
        numbers = uniform_from_sample_keys(sample_keys_at(key, positions))
        found = np.searchsorted(self._cumulative, numbers * self._cumulative[-1], side="right")
        # a number just below 1 times the sum may round up to the sum, behind the last sample
        drawn: Indices = np.minimum(found, self._last)
        return drawn
