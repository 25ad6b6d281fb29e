# SPDX-License-Identifier: Apache-2.0
"""When each step of a run was and how many epochs were done by then: what the page needs to draw curves by epoch or by time."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from truestep.core.charts.axes import exact_linear_axis
from truestep.core.charts.chart_script_data import axis_ticks
from truestep.core.charts.markup import Html, html_data
from truestep.report.run_record import RunRecord

MAX_KNOTS = 2_000
TOLERANCE = 1 / 4_000  # of a run's time: a quarter of a pixel
FEW_EPOCHS = 5  # an axis of fewer has ticks between them
TIME_UNITS = (("d", 86_400, 4), ("h", 3600, 3), ("min", 60, 3), ("s", 1, 0))  # each from so many of it

MAX_SECONDS = 1e12  # no run takes so long; another program wrote it

Knots = list[tuple[float, float]]
"""Steps with a value each, straight lines between them; the steps rise."""


def epoch_timeline(records: Sequence[RunRecord]) -> Html | None:
    """Return as data the runs' epochs and times by step, and the axes of these that the reader can choose."""
    runs = [
        {"epoch": epochs_done_by_step(record), "time": elapsed_seconds_by_step(record)} for record in records
    ]
    if not any(run["time"] for run in runs):
        return None
    axes = {"epoch": _epoch_axis(runs, records), "time": _time_axis(runs)}
    return html_data(
        {
            "axes": {name: axis for name, axis in axes.items() if axis},
            "runs": [{name: _knot_columns(knots) for name, knots in run.items()} for run in runs],
        },
        id="timeline",
    )


def epochs_done_by_step(record: RunRecord) -> Knots:
    """Return how many epochs were done at the steps where one ended; the last is taken to be as long as the one before."""
    ends = sorted((step, epoch + 1) for epoch, step in record.epoch_ends.items())
    if not ends:
        return []
    first = min(record.epoch_ends)
    knots: Knots = [(min(0, record.first_step - 1) if first == 0 else record.first_step - 1, first)]
    for step, done in ends:
        if step > knots[-1][0] and done > knots[-1][1]:
            knots.append((step, done))
    if len(knots) > 2:
        before, last, end = (step for step, _ in knots[-3:])
        knots[-1] = (max(end, 2 * last - before), knots[-1][1])
    return _subsample_knots(_simplify_knots(knots))


def elapsed_seconds_by_step(record: RunRecord) -> Knots:
    """Return the seconds that had gone at steps; they never fall."""
    curve = record.elapsed
    if curve is None or curve.lowest is None or curve.highest is None:
        return []
    ends = [(each.step, each.value) for each in (curve.lowest, curve.highest)]
    inner = [(round(point.step), point.mean) for point in curve.points() if point.is_finite]
    knots: Knots = []
    for step, seconds in sorted([*ends, *inner]):
        latest = max(seconds, knots[-1][1]) if knots else seconds
        if knots and knots[-1][0] == step:
            knots.pop()
        knots.append((step, float(f"{latest:.6g}")))
    return _simplify_knots(knots, tolerance=knots[-1][1] * TOLERANCE)


def _simplify_knots(knots: Knots, tolerance: float = 0.0) -> Knots:
    """Leave out what lies so near to the line between those that stay: epochs of one length need two knots."""
    if not knots:
        return []
    kept, least, most = [knots[0]], -math.inf, math.inf  # slopes that pass all knots since the last one kept
    for before, knot in pairwise(knots):
        if not least <= _slope(kept[-1], knot) <= most:
            kept.append(before)
            least, most = -math.inf, math.inf
        least = max(least, _slope(kept[-1], knot, -tolerance))
        most = min(most, _slope(kept[-1], knot, tolerance))
    return kept if kept[-1] == knots[-1] else [*kept, knots[-1]]


def _slope(start: tuple[float, float], end: tuple[float, float], more: float = 0.0) -> float:
    return (end[1] + more - start[1]) / (end[0] - start[0])


def _subsample_knots(knots: Knots) -> Knots:
    every = -(-len(knots) // MAX_KNOTS)
    return knots if every < 2 else [*knots[:-1:every], knots[-1]]


def interpolate_knots(knots: Knots, step: float) -> float:
    """Return the value at a step, as the page's script does: on the line, and at the ends what is there."""
    for (left, low), (right, high) in pairwise(knots):
        if step < right:
            return low + max(0, step - left) * (high - low) / (right - left)
    return knots[-1][1]


def _epoch_axis(runs: Sequence[dict[str, Knots]], records: Sequence[RunRecord]) -> dict[str, object] | None:
    if max(len(record.epoch_ends) for record in records) < 2:
        return None
    drawn = [(run["epoch"], record) for run, record in zip(runs, records, strict=True) if run["epoch"]]
    low = min(knots[0][1] for knots, _ in drawn)
    high = max(interpolate_knots(knots, record.last_step) for knots, record in drawn)
    return _axis_for_script(low, high, "epoch", 1, whole=high - low >= FEW_EPOCHS)


def _time_axis(runs: Sequence[dict[str, Knots]]) -> dict[str, object] | None:
    seconds = [value for run in runs for _, value in run["time"]]
    low, high = min(0.0, *seconds), max(seconds)
    if (
        all(run["time"][0][1] == run["time"][-1][1] for run in runs if run["time"])
        or high - low > MAX_SECONDS
    ):
        return None
    unit, scale = next((unit, size) for unit, size, least in TIME_UNITS if high - low >= least * size)
    return _axis_for_script(low, high, unit, scale, whole=False)


def _axis_for_script(low: float, high: float, unit: str, scale: float, *, whole: bool) -> dict[str, object]:
    axis = exact_linear_axis(low / scale, high / scale, whole=whole)
    return {"x": [axis.low * scale, axis.high * scale], "unit": unit, "ticks": axis_ticks(axis)}


def _knot_columns(knots: Iterable[tuple[float, float]]) -> list[list[float]]:
    columns = list(zip(*knots, strict=True))
    return [list(column) for column in columns] or [[], []]
