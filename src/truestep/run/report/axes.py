# SPDX-License-Identifier: Apache-2.0
"""Axes: where a value lies, and round numbers to label."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from truestep.run.wording import short_number

LOG_FROM_RATIO = (
    30.0  # values that differ by more than this are drawn on a logarithmic axis where all are positive
)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A stretch of numbers, linear or logarithmic, with its ticks."""

    low: float
    high: float
    is_log: bool
    ticks: tuple[float, ...]

    def position(self, value: float) -> float:
        """Return where the value lies, from 0 at `low` to 1 at `high`, and on the edge beyond them."""
        if self.is_log:
            place = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            # halves, so that the span of the greatest floats does not overflow
            place = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return min(1.0, max(0.0, place))

    def labels(self) -> list[str]:
        """Return a text for each tick, with as many decimals as their distance needs."""
        if self.is_log or len(self.ticks) < 2:
            return [_label(tick, 3) for tick in self.ticks]
        step = self.ticks[1] - self.ticks[0]
        digits = max(abs(self.ticks[0]), abs(self.ticks[-1])) / step
        return [_label(tick, max(2, math.ceil(math.log10(digits * 1.0001)) + 1)) for tick in self.ticks]


def _label(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        text = f"{value:.{digits - 1}e}"
        mantissa, _, exponent = text.partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    if abs(value) >= 1e15:
        return f"{value:.0e}".replace("e+", "e")
    if abs(value) >= 1e4:
        return short_number(value).replace("-", "−")
    return f"{value:,.{digits}g}".replace("-", "−") if "e" not in f"{value:.{digits}g}" else f"{value:,.0f}"


def axis_for(low: float, high: float, *, may_be_log: bool, num_ticks: int = 5) -> Axis:
    """Return the axis that shows values from `low` to `high`, both finite."""
    if may_be_log and low > 0 and high / low > LOG_FROM_RATIO:
        return _log_axis(low, high, num_ticks)
    return _linear_axis(low, high, num_ticks)


def span_axis(low: float, high: float, num_ticks: int = 5) -> Axis:
    """Return a linear axis that ends exactly at `low` and `high`, for the steps."""
    if low == high:
        return Axis(low=low - 1, high=high + 1, is_log=False, ticks=(low,))
    step = max(1.0, _nice_step((high - low) / num_ticks))
    return Axis(low=low, high=high, is_log=False, ticks=tuple(_multiples(low, high, step)))


def _linear_axis(low: float, high: float, num_ticks: int) -> Axis:
    if low == high:
        margin = abs(low) / 2 or 0.5
        low, high = (low - margin, high + margin) if low < 0 else (max(0.0, low - margin), high + margin)
    elif 0 < low < 0.35 * high:
        low = 0.0  # near enough for the axis to begin at zero
    step = _nice_step(high / num_ticks - low / num_ticks)
    ends = math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step
    if not all(map(math.isfinite, ends)):
        ends = low, high
    return Axis(low=ends[0], high=ends[1], is_log=False, ticks=tuple(_multiples(*ends, step)))


def _log_axis(low: float, high: float, num_ticks: int) -> Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / num_ticks))
    factors: Sequence[int] = (1, 2, 5) if last - first <= 2 else (1, 3) if last - first <= 3 else (1,)
    ticks = [factor * 10.0**power for power in range(max(first, -307), last + 1, every) for factor in factors]
    # half a tenth of room below and above
    room = (high / low) ** 0.04 if high / low < 1e100 else 1.0
    ends = max(low / room, 5e-324), min(high * room, 1.7e308)
    inside = tuple(tick for tick in ticks if ends[0] <= tick <= ends[1])
    return Axis(low=ends[0], high=ends[1], is_log=True, ticks=inside or (low, high))


def _nice_step(step: float) -> float:
    """Return the least of 1, 2, 2.5 and 5 times a power of ten that is no smaller."""
    if step <= 0 or not math.isfinite(step):
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next((factor * power for factor in (1, 2, 2.5, 5) if factor * power >= step * 0.999), 10 * power)


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if last - first > 100:
        return [low, high]
    return [number * step for number in range(first, last + 1)]
