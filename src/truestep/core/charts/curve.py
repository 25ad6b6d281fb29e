# SPDX-License-Identifier: Apache-2.0
"""A metric over the steps: each value while they are few, at most 512 bins of them however long the run was.

A bin keeps its least and greatest value and counts NaN and infinities, so that no spike and no NaN is
lost when three million values share the width of a screen.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 512


@dataclass(frozen=True, slots=True)
class ChartPoint:
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
class ChartExtreme:
    """A least or greatest value, and the first step that had it."""

    value: float
    step: int


class ChartCurve:
    """Takes values in any number and keeps what can be drawn of them, in constant memory."""

    def __init__(self, first_step: int) -> None:
        self.first_step = first_step
        self.steps_per_bin = 1
        self.num_values = self.num_nan = self.num_infinite = 0
        self.last = math.nan
        self.lowest: ChartExtreme | None = None
        self.highest: ChartExtreme | None = None
        self._few: list[tuple[int, float]] = []  # empty once there are too many and bins have them all
        self._steps = np.zeros(NUM_BINS)
        self._sums = np.zeros(NUM_BINS)
        self._low = np.full(NUM_BINS, np.inf)
        self._high = np.full(NUM_BINS, -np.inf)
        self._counts = np.zeros((3, NUM_BINS), dtype=np.int64)  # values, NaN, infinite

    def add(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Take values in the order in which they were logged."""
        self.last = float(values[-1])
        self._update_extremes(steps, values)
        if self.num_values + len(values) <= NUM_BINS:
            self._few.extend(zip(steps.tolist(), values.tolist(), strict=True))
        elif self._few:
            few, self._few = self._few, []
            self._put_into_bins(np.array([step for step, _ in few]), np.array([value for _, value in few]))
        if not self._few:
            self._put_into_bins(steps, values)
        self.num_values += len(values)

    def _put_into_bins(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        # Bins begin at the first step and only ever double, so that old values keep a bin of their own without being kept.
        while (int(steps.max()) - self.first_step) // self.steps_per_bin >= NUM_BINS:
            self._widen_bins()
        bins = np.maximum(0, (steps - self.first_step) // self.steps_per_bin)
        finite, nan = np.isfinite(values), np.isnan(values)
        # `add.at` and not `self._steps[bins] +=`, which counts a bin that comes twice once
        np.add.at(self._steps, bins, steps)
        with np.errstate(over="ignore"):
            np.add.at(self._sums, bins[finite], values[finite])
        np.minimum.at(self._low, bins[finite], values[finite])
        np.maximum.at(self._high, bins[finite], values[finite])
        for row, chosen in enumerate((np.ones_like(nan), nan, ~finite & ~nan)):
            self._counts[row] += np.bincount(bins[chosen], minlength=NUM_BINS)

    def _update_extremes(self, steps: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        finite = np.isfinite(values)
        self.num_nan += int(np.isnan(values).sum())
        self.num_infinite += int(np.isinf(values).sum())
        steps, values = steps[finite], values[finite]
        if not len(values):
            return
        # of equals the first, as of checkpoints: the one that is kept is the one that is named
        least, most = int(values.argmin()), int(values.argmax())
        if self.lowest is None or values[least] < self.lowest.value:
            self.lowest = ChartExtreme(float(values[least]), int(steps[least]))
        if self.highest is None or values[most] > self.highest.value:
            self.highest = ChartExtreme(float(values[most]), int(steps[most]))

    def _widen_bins(self) -> None:
        """Make each bin twice as wide."""

        def halve_bins(bins: NDArray[np.float64], empty: float, join: np.ufunc) -> NDArray[np.float64]:
            joined = join.reduce(bins.reshape(NUM_BINS // 2, 2), axis=1)
            return np.concatenate([joined, np.full(NUM_BINS // 2, empty)])

        self.steps_per_bin *= 2
        self._steps = halve_bins(self._steps, 0.0, np.add)
        with np.errstate(over="ignore"):
            self._sums = halve_bins(self._sums, 0.0, np.add)
        self._low = halve_bins(self._low, np.inf, np.minimum)
        self._high = halve_bins(self._high, -np.inf, np.maximum)
        self._counts = np.pad(self._counts.reshape(3, -1, 2).sum(axis=2), ((0, 0), (0, NUM_BINS // 2)))

    @property
    def values_per_point(self) -> int:
        """How many values share a point where the curve is densest."""
        return 1 if self._few else int(self._counts[0].max())

    def points(self) -> list[ChartPoint]:
        """Return the values, or the bins that hold any, in the order of their steps."""
        if self._few:
            return [
                _single_value_point(step, value)
                for step, value in sorted(self._few, key=lambda each: each[0])
            ]
        return [self._point_of_bin(int(index)) for index in np.flatnonzero(self._counts[0])]

    def _point_of_bin(self, index: int) -> ChartPoint:
        count, num_nan, num_infinite = (int(number) for number in self._counts[:, index])
        low, high, num_finite = self._low[index], self._high[index], count - num_nan - num_infinite
        # a sum of huge values may be infinite; their mean lies between the least and the greatest
        mean = min(max(self._sums[index] / num_finite, low), high) if num_finite else math.nan
        if not num_finite:
            low = high = math.nan
        values = float(mean), float(low), float(high)
        return ChartPoint(self._steps[index] / count, *values, count, num_nan, num_infinite)


def _single_value_point(step: int, value: float) -> ChartPoint:
    drawn = value if math.isfinite(value) else math.nan
    return ChartPoint(step, drawn, drawn, drawn, 1, int(math.isnan(value)), int(math.isinf(value)))
