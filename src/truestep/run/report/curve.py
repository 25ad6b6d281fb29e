# SPDX-License-Identifier: Apache-2.0
"""A metric over the steps, in at most 512 bins however long the run was.

A bin keeps its least and greatest value and counts NaN and infinities, so that no spike and no NaN is
lost when three million values share the width of a screen.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 512


@dataclass(frozen=True, slots=True)
class Point:
    """The values of one bin; `mean`, `low` and `high` are of the finite ones, NaN where there is none."""

    step: float
    mean: float
    low: float
    high: float
    num_values: int
    num_nan: int
    num_infinite: int

    @property
    def is_finite(self) -> bool:
        """Whether there is a value to draw."""
        return self.num_values > self.num_nan + self.num_infinite


@dataclass(frozen=True, slots=True)
class Extreme:
    """A least or greatest value, and the first step that had it."""

    value: float
    step: int


class Curve:
    """Takes values in any number and keeps what can be drawn of them, in constant memory."""

    def __init__(self, first_step: int) -> None:
        self.first_step = first_step
        self.steps_per_bin = 1
        self.num_values = 0
        self.last = math.nan
        self.lowest: Extreme | None = None
        self.highest: Extreme | None = None
        self._steps = np.zeros(NUM_BINS)
        self._sums = np.zeros(NUM_BINS)
        self._low = np.full(NUM_BINS, np.inf)
        self._high = np.full(NUM_BINS, -np.inf)
        self._counts = np.zeros((3, NUM_BINS), dtype=np.int64)  # values, NaN, infinite

    def add(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Take values in the order in which they were logged."""
        while (int(steps.max()) - self.first_step) // self.steps_per_bin >= NUM_BINS:
            self._double()
        bins = np.maximum(0, (steps - self.first_step) // self.steps_per_bin)
        finite, nan = np.isfinite(values), np.isnan(values)
        np.add.at(self._steps, bins, steps)
        with np.errstate(over="ignore"):
            np.add.at(self._sums, bins[finite], values[finite])
        np.minimum.at(self._low, bins[finite], values[finite])
        np.maximum.at(self._high, bins[finite], values[finite])
        for row, chosen in enumerate((np.ones_like(nan), nan, ~finite & ~nan)):
            self._counts[row] += np.bincount(bins[chosen], minlength=NUM_BINS)
        self.num_values += len(values)
        self.last = float(values[-1])
        if finite.any():
            self._note_extremes(steps[finite], values[finite])

    def _note_extremes(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        least, most = int(values.argmin()), int(values.argmax())
        if self.lowest is None or values[least] < self.lowest.value:
            self.lowest = Extreme(float(values[least]), int(steps[least]))
        if self.highest is None or values[most] > self.highest.value:
            self.highest = Extreme(float(values[most]), int(steps[most]))

    def _double(self) -> None:
        """Make each bin twice as wide."""

        def halved(bins: NDArray[np.float64], empty: float, join: np.ufunc) -> NDArray[np.float64]:
            joined = join.reduce(bins.reshape(NUM_BINS // 2, 2), axis=1)
            return np.concatenate([joined, np.full(NUM_BINS // 2, empty)])

        self.steps_per_bin *= 2
        self._steps = halved(self._steps, 0.0, np.add)
        with np.errstate(over="ignore"):
            self._sums = halved(self._sums, 0.0, np.add)
        self._low = halved(self._low, np.inf, np.minimum)
        self._high = halved(self._high, -np.inf, np.maximum)
        self._counts = np.pad(self._counts.reshape(3, -1, 2).sum(axis=2), ((0, 0), (0, NUM_BINS // 2)))

    @property
    def num_nan(self) -> int:
        """How many values were NaN."""
        return int(self._counts[1].sum())

    @property
    def num_infinite(self) -> int:
        """How many values were infinite."""
        return int(self._counts[2].sum())

    def points(self) -> list[Point]:
        """Return the bins that hold anything, in the order of their steps."""
        return [self._point(int(index)) for index in np.flatnonzero(self._counts[0])]

    def _point(self, index: int) -> Point:
        count, num_nan, num_infinite = (int(number) for number in self._counts[:, index])
        low, high, num_finite = self._low[index], self._high[index], count - num_nan - num_infinite
        # a sum of huge values may be infinite; their mean lies between the least and the greatest
        mean = min(max(self._sums[index] / num_finite, low), high) if num_finite else math.nan
        if not num_finite:
            low = high = math.nan
        return Point(
            self._steps[index] / count, float(mean), float(low), float(high), count, num_nan, num_infinite
        )
