# SPDX-License-Identifier: Apache-2.0
"""What a chart shows as data, for the page's script: values under the pointer, smoothing, the other kind of axis."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from truestep.core.charts.axes import ChartAxis
from truestep.core.charts.curve import ChartPoint


class DrawnCurve(NamedTuple):
    """A curve as it is drawn: the number of its run says on which timeline of the page its steps lie."""

    name: str
    style: str
    run: int
    points: Sequence[ChartPoint]


def chart_data(
    curves: Sequence[DrawnCurve], steps: ChartAxis, axes: tuple[ChartAxis, ChartAxis | None], unit: str
) -> dict[str, object]:
    """Return the curves on their axes, rounded to what can be read off."""
    axis, other = axes
    return {
        "x": [steps.low, steps.high],
        "y": _axis_limits_and_scale(axis),
        **({"other": {"y": _axis_limits_and_scale(other), "ticks": axis_ticks(other)}} if other else {}),
        "unit": unit,
        "series": [
            {"name": each.name, "style": each.style}
            | ({"run": each.run} if each.run else {})
            | _point_columns(each.points)
            for each in curves
        ],
    }


def _axis_limits_and_scale(axis: ChartAxis) -> list[float]:
    return [axis.low, axis.high, int(axis.is_log)]


def axis_ticks(axis: ChartAxis) -> list[tuple[float, str]]:
    """Return the ticks of an axis, each its place from 0 to 1 and its label."""
    places = (round(axis.position(tick), 4) for tick in axis.ticks)
    return list(zip(places, axis.labels(), strict=True))


def _round_to_6_digits(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _point_columns(points: Sequence[ChartPoint]) -> dict[str, object]:
    columns: dict[str, object] = {
        "steps": [round(point.step) for point in points],
        "mean": [_round_to_6_digits(point.mean) for point in points],
    }
    if any(point.num_values > 1 for point in points):
        columns |= {
            "low": [_round_to_6_digits(point.low) for point in points],
            "high": [_round_to_6_digits(point.high) for point in points],
            "count": [point.num_values for point in points],
        }
    spoiled = {
        index: f"{point.num_nan} × NaN" if point.num_nan else f"{point.num_infinite} × ∞"
        for index, point in enumerate(points)
        if point.num_nan or point.num_infinite
    }
    return columns | ({"spoiled": spoiled} if spoiled else {})
