# SPDX-License-Identifier: Apache-2.0
"""Which charts a run's metrics make: what belongs together by its name stands on one pair of axes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from truestep.core.charts.chart import Chart, ChartSeries
from truestep.core.charts.curve import ChartCurve
from truestep.core.text_formatting import bytes_text, short_number
from truestep.report.run_record import RunRecord

# what `Learner` and `Run` log under fixed names, and how it is drawn
_FROM_ZERO: dict[str, Any] = {"may_be_log": False, "from_zero": True}
TRAINING: dict[str, dict[str, Any]] = {
    "learning_rate": _FROM_ZERO | {"title": "Learning rate"},
    "gradient_norm": {"title": "Gradient norm", "note": "Before clipping."},
    "samples_per_second": _FROM_ZERO | {"title": "Throughput", "unit": "samples/s", "wording": short_number},
    "memory_bytes": _FROM_ZERO | {"title": "Memory", "wording": bytes_text},
    "updates_skipped": _FROM_ZERO
    | {"title": "Updates skipped", "note": "So far, because a gradient overflowed or was not finite."},
    "save_stall_seconds": _FROM_ZERO
    | {"title": "Time lost to saving", "unit": "s", "note": "So far, all saves together."},
}
KNOWN = tuple(TRAINING)
COUNTERS = ("updates_skipped", "save_stall_seconds")

SPLIT = r"(train|training|val|valid|validation|test|eval|evaluation|dev)"
BINARY_UNITS = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("bytes", 1.0))


def metric_group(name: str) -> str:
    """Return what a metric is of: "loss" for `critic/loss` and `test_loss`, "accuracy" for `val/accuracy`."""
    parts = name.split("/")
    if parts[-1] in KNOWN:
        return parts[-1]
    if any(re.fullmatch(r"(.*_)?loss(_.*)?", part, re.IGNORECASE) for part in parts):
        return "loss"
    telling = [part for part in parts if not re.fullmatch(SPLIT, part, re.IGNORECASE)] or parts
    return re.sub(f"^{SPLIT}[_-]|[_-]{SPLIT}$", "", telling[-1], flags=re.IGNORECASE) or name


def group_curves(record: RunRecord) -> dict[str, list[ChartSeries]]:
    """Return the run's curves by what they are of, in the order in which they first appeared."""
    groups: dict[str, list[ChartSeries]] = {}
    colours: dict[str, int] = {}  # of learners, the same on every chart
    for name, curve in record.curves.items():
        group = metric_group(name)
        series = groups.setdefault(group, [])
        if group in (*KNOWN, "loss"):
            owner = name.removesuffix("/" + group)
            # A learner's name is what stands before the last part; without one there is a single learner.
            colour = colours.setdefault("" if owner == group else owner, len(colours))
            series.append(ChartSeries(name=owner, curve=curve, colour=colour))
        else:
            series.append(ChartSeries(name=name, curve=curve, colour=len(series)))
    return groups


@dataclass(frozen=True, kw_only=True)
class ReportFigures:
    """The charts of a report by section, and what was not logged."""

    loss: Sequence[Chart]
    metrics: Sequence[Chart]
    training: Sequence[Chart]
    absent: Sequence[str]


def report_figures(groups: dict[str, list[ChartSeries]]) -> ReportFigures:
    """Return the charts that these groups make."""
    metrics = [
        Chart(title=group, series=series) for group, series in groups.items() if group not in (*KNOWN, "loss")
    ]
    training = [
        Chart(series=groups[name], **options, **_memory_unit(name, groups[name]))
        for name, options in TRAINING.items()
        if name in groups and _is_chart_worth_showing(name, groups)
    ]
    absent = [
        name.replace("_", " ") for name in ("loss", *KNOWN) if name not in (*groups, "save_stall_seconds")
    ]
    is_wide = len(metrics) != 1  # a single metric stands beside the loss
    loss = [Chart(title="Loss", series=groups["loss"], is_wide=is_wide)] if "loss" in groups else []
    return ReportFigures(loss=loss, metrics=metrics, training=training, absent=absent)


def _is_chart_worth_showing(name: str, groups: dict[str, list[ChartSeries]]) -> bool:
    """A flat line at zero says in a whole chart what the headline says in a word."""
    return name not in COUNTERS or any(not _is_curve_all_zero(series.curve) for series in groups[name])


def _is_curve_all_zero(curve: ChartCurve) -> bool:
    return curve.highest is not None and curve.highest.value == 0 and not curve.num_nan


def _memory_unit(name: str, series: list[ChartSeries]) -> dict[str, Any]:
    """Return the unit of memory, by the most that there was; others have theirs."""
    if name != "memory_bytes":
        return {}
    most = max((each.curve.highest.value for each in series if each.curve.highest), default=0.0)
    unit, divisor = next((unit, size) for unit, size in BINARY_UNITS if most >= size or size == 1)
    return {"unit": unit, "divisor": divisor}
