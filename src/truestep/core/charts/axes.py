# SPDX-License-Identifier: Apache-2.0
"""Axes: where a value lies, and round numbers to label."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

UNITS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
HUGE = sys.float_info.max
TINY = 1e-290  # less than this is drawn as zero
CLOSE = 1.5e-4  # a range of less than twice this share of its values is widened, so that ticks differ in four decimals
NUM_TICKS = 5
LOG_FROM_RATIO = 30.0  # positive values that differ by more than this get a logarithmic axis


@dataclass(frozen=True, kw_only=True)
class ChartAxis:
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
            return [_tick_label(tick, abs(tick), abs(tick)) for tick in self.ticks]
        greatest = max(abs(self.ticks[0]), abs(self.ticks[-1]))
        return [_tick_label(tick, self.ticks[1] - self.ticks[0], greatest) for tick in self.ticks]


def _tick_label(value: float, step: float, greatest: float) -> str:
    """Write a tick as its neighbours are written: they are `step` apart, the greatest of them is given."""
    if abs(value) < step / 2 or value == 0:
        return "0"
    sign = "−" if value < 0 else ""
    if greatest >= 1e15 or greatest < 1e-3:
        power = math.floor(math.log10(abs(value)) + 1e-9)
        mantissa = f"{abs(value):.{max(0, power - _last_digit_exponent(step))}e}".partition("e")[0]
        return f"{sign}{_strip_trailing_zeros(mantissa)}e{power}"
    fitting = (each for each in UNITS if greatest >= max(1e4, each[1]))
    # 0.999999999975T is longer than 999.999999975G
    letter, unit = next((each for each in fitting if _last_digit_exponent(step / each[1]) >= -11), ("", 1.0))
    decimals = max(0, -_last_digit_exponent(step / unit))
    return (
        sign
        + _strip_trailing_zeros(f"{abs(value) / unit:{',' if decimals == 0 else ''}.{decimals}f}")
        + letter
    )


def _last_digit_exponent(step: float) -> int:
    """Return the power of ten of the last digit that multiples of the step need: -2 for 0.25."""
    power = math.floor(math.log10(step) + 1e-9)
    leading = step / 10.0**power if power > -300 else 1.0
    return power if abs(leading - round(leading)) < 1e-6 else power - 1


def _strip_trailing_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def value_axis(low: float, high: float, *, may_be_log: bool, num_ticks: int = NUM_TICKS) -> ChartAxis:
    """Return the axis that shows values from `low` to `high`, both finite."""
    if may_be_log and low > TINY and high / low > LOG_FROM_RATIO:
        return _log_axis(low, high, num_ticks)
    return _linear_axis(low, high, num_ticks)


def opposite_scale_axis(axis: ChartAxis, low: float, high: float) -> ChartAxis | None:
    """Return the linear axis for a logarithmic one and the other way round; None where the values give none."""
    if axis.is_log:
        return _linear_axis(low, high, 5)
    other = _log_axis(low, high, 5) if TINY < low < high else None
    return other if other is not None and len(other.ticks) > 1 else None


def exact_linear_axis(low: float, high: float, *, whole: bool = True) -> ChartAxis:
    """Return a linear axis that ends exactly at `low` and `high`, for the steps; `whole`: its ticks are whole numbers."""
    if low == high:
        margin = max(1.0, abs(low) * 1e-9)  # one more than 10^16 is the same float
        return ChartAxis(low=low - margin, high=high + margin, is_log=False, ticks=(low,))
    step = _nice_step((high - low) / NUM_TICKS)
    if whole:
        step = max(1.0, step * 2 if step > 1 and step % 1 else step)  # 5 for 2.5
    return ChartAxis(low=low, high=high, is_log=False, ticks=tuple(_multiples_in_range(low, high, step)))


def _linear_axis(low: float, high: float, num_ticks: int) -> ChartAxis:
    low, high = _widen_narrow_range(low, high)
    if 0 < low < 0.35 * high:
        low = 0.0  # near enough for the axis to begin at zero
    step = _nice_step(high / num_ticks - low / num_ticks)
    ends = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    if not all(map(math.isfinite, ends)):
        ends = low, high
    return ChartAxis(low=ends[0], high=ends[1], is_log=False, ticks=tuple(_multiples_in_range(*ends, step)))


def _widen_narrow_range(low: float, high: float) -> tuple[float, float]:
    """Give values that hardly differ an axis that labels of five digits can tell apart."""
    size = max(abs(low), abs(high))
    if size < TINY:
        return (0.0, 1.0) if low >= 0 else (-1.0, 0.0)
    if low == high:
        ends = sorted([low / 2, max(-HUGE, min(HUGE, low * 1.5))])
        return ends[0], ends[1]
    margin = CLOSE * size
    if high / 2 - low / 2 < margin:  # near the greatest float there is room on one side only
        return max(-HUGE, min(low, HUGE - margin) - margin), min(HUGE, max(high, margin - HUGE) + margin)
    return low, high


def _log_axis(low: float, high: float, num_ticks: int) -> ChartAxis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / num_ticks))
    factors: Sequence[int] = (1, 2, 5) if last - first <= 2 else (1, 3) if last - first <= 3 else (1,)
    ticks = [factor * 10.0**power for power in range(first, min(last, 307) + 1, every) for factor in factors]
    room = (high / low) ** 0.04 if high / low < 1e100 else 1.0
    ends = low / room, min(HUGE, high * room)
    inside = tuple(tick for tick in ticks if ends[0] <= tick <= ends[1])
    return ChartAxis(low=ends[0], high=ends[1], is_log=True, ticks=inside)


def _nice_step(step: float) -> float:
    """Return the least of 1, 2, 2.5 and 5 times a power of ten that is no smaller."""
    power = 10.0 ** math.floor(math.log10(step))
    return next((factor * power for factor in (1, 2, 2.5, 5) if factor * power >= step * 0.999), 10 * power)


def _multiples_in_range(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]
