# SPDX-License-Identifier: Apache-2.0
"""A shuffle that can be entered anywhere: no table, no stream, one key."""

import math

import numpy as np
import numpy.typing as npt

from truestep.engine.data.keys import Keys, sample_keys_at

Indices = npt.NDArray[np.int64]

ROUNDS = 8  # four are enough for ideal round functions (Luby and Rackoff 1988); `_keyed_value_below` is a cheap hash
SMALL = 4096  # up to here the whole permutation is drawn by sorting: exactly uniform, and faster
_FIRST, _SECOND, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


class SamplePermutation:
    """A permutation of `size` items, chosen by `key` and computed at any positions alone.

    Time and memory do not depend on `size`: a Feistel network over pairs (row, column) of a grid with
    just over `size` cells, whose halves are added rather than xored, so that any grid will do
    (Black and Rogaway 2002); a cell outside is encrypted again until it lands inside.
    """

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self._table: Indices | None = None
        if size <= SMALL:
            self._table = np.argsort(sample_keys_at(key, np.arange(size)), kind="stable")
            return
        rows = math.isqrt(size - 1) + 1
        self._rows, self._columns = np.uint64(rows), np.uint64(-(-size // rows))
        self._keys = sample_keys_at(key, np.arange(ROUNDS))

    def __call__(self, positions: Indices) -> Indices:
        """Return the items at `positions`, each in 0 … size-1."""
        if self._table is not None:
            return self._table[positions]
        items = self._encrypt(positions.astype(np.uint64))
        outside = np.flatnonzero(items >= self.size)
        while outside.size:
            items[outside] = self._encrypt(items[outside])
            outside = outside[items[outside] >= self.size]
        return items.astype(np.int64)

    def _encrypt(self, cells: Keys) -> Keys:
        left, right = np.divmod(cells, self._columns)
        modulus, other = self._rows, self._columns
        for key in self._keys:
            left, right = right, (left + _keyed_value_below(modulus, right, key)) % modulus
            modulus, other = other, modulus
        return left * self._columns + right


def _keyed_value_below(modulus: np.uint64, half: Keys, key: np.uint64) -> Keys:
    """Return a keyed function of `half` in 0 … modulus-1."""
    mixed = (half + key) * _FIRST
    mixed = (mixed ^ (mixed >> _HALF)) * _SECOND
    mixed = (mixed ^ (mixed >> _HALF)) * _SECOND
    return ((mixed >> _HALF) * modulus) >> _HALF  # a multiplication instead of a division
