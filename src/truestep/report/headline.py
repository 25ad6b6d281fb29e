# SPDX-License-Identifier: Apache-2.0
"""The figures at the top of a report: how it went, at a glance."""

import math
import statistics
from collections.abc import Iterator, Sequence

from truestep.core.charts.chart import ChartSeries
from truestep.core.charts.curve import ChartCurve
from truestep.core.charts.markup import Html, html_tag
from truestep.core.metric_names import Better
from truestep.core.wording import byte_size, duration_text, number_text, short_number
from truestep.report.best import best_metric_value, declared_best_metric
from truestep.report.record import ReportedRun

MAX_METRICS, MAX_LOSSES = 3, 3


def report_headline(
    record: ReportedRun, groups: dict[str, list[ChartSeries]], metrics: Sequence[str]
) -> Html:
    """Return the tiles: the metric of the best checkpoint, other metrics, losses, steps, time, throughput, memory, warnings."""
    name, way = declared_best_metric(record.config) or ("", None)
    declared = record.curves.get(name)
    others = [series for each in metrics for series in groups[each] if series.curve is not declared]
    losses = [series for series in groups.get("loss", []) if series.curve is not declared]
    tiles = [
        *([] if declared is None else [_value_tile(ChartSeries(name=name, curve=declared), way=way)]),
        *(_value_tile(series) for series in others[: MAX_METRICS - (declared is not None)]),
        *(_value_tile(series, "loss") for series in losses[:MAX_LOSSES]),
        *_extent(record),
        *_cost(groups),
        *_warnings(record, groups),
    ]
    return html_tag("dl", *tiles, class_="tiles", style=f"--columns: {_num_columns(len(tiles))}")


def _num_columns(num_tiles: int) -> int:
    """Return how many tiles to put in a row on a wide screen, so that the last row has the fewest gaps."""
    return min((6, 5, 4), key=lambda columns: -num_tiles % columns)


def _tile(label: str, value: str, note: str = "", *, is_bad: bool = False) -> Html:
    return html_tag(
        "div",
        html_tag("dt", label),
        html_tag("dd", value, class_="value"),
        html_tag("dd", note, class_="about") if note else None,
        class_="tile bad" if is_bad else "tile",
    )


def _value_tile(series: ChartSeries, suffix: str = "", *, way: Better | None = None) -> Html:
    last, label = (
        series.curve.last,
        series.name if suffix in series.name else f"{series.name} {suffix}".strip(),
    )
    return _tile(label, number_text(last), _best(label, series.curve, way), is_bad=not math.isfinite(last))


def _best(label: str, curve: ChartCurve, way: Better | None) -> str:
    """Name the best value where the run or the name says which way is better, else the range."""
    if curve.lowest is None or curve.highest is None or curve.num_values == 1:
        return ""
    if (extreme := best_metric_value(label, curve, way)) is not None:
        return f"best {number_text(extreme.value)} at step {extreme.step:,}"
    return f"from {number_text(curve.lowest.value)} to {number_text(curve.highest.value)}"


def _extent(record: ReportedRun) -> Iterator[Html]:
    num_epochs = len(record.epoch_ends)
    yield _tile("steps", f"{record.last_step:,}", f"in {num_epochs:,} epoch{'s' * (num_epochs != 1)}")
    seconds = record.elapsed_seconds
    note = (
        f"{1000 * seconds / record.last_step:,.3g} ms per step, everything included"
        if record.last_step
        else ""
    )
    yield _tile("time", f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds), note)


def _cost(groups: dict[str, list[ChartSeries]]) -> Iterator[Html]:
    for series in groups.get("samples_per_second", [])[:1]:
        means = [point.mean for point in series.curve.points() if point.is_finite]
        if means:
            yield _tile("throughput", short_number(statistics.median(means)), "samples/s, median")
    peaks = [series.curve.highest.value for series in groups.get("memory_bytes", []) if series.curve.highest]
    if peaks:
        yield _tile("memory", byte_size(max(peaks)), "peak")


def _warnings(record: ReportedRun, groups: dict[str, list[ChartSeries]]) -> Iterator[Html]:
    counts = [
        series.curve.highest.value for series in groups.get("updates_skipped", []) if series.curve.highest
    ]
    if counts:
        num_skipped = sum(counts)
        note = f"{100 * num_skipped / max(1, record.last_step):.2g}% of the steps" if num_skipped else ""
        yield _tile("updates skipped", f"{num_skipped:,.0f}", note, is_bad=num_skipped > 0)
    spoiled = {
        name: curve.num_nan + curve.num_infinite
        for name, curve in record.curves.items()
        if curve.num_nan or curve.num_infinite
    }
    if spoiled:
        where = ", ".join(list(spoiled)[:3]) + (", …" if len(spoiled) > 3 else "")
        yield _tile("NaN or infinite", f"{sum(spoiled.values()):,}", f"in {where}", is_bad=True)
