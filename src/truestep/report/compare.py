# SPDX-License-Identifier: Apache-2.0
"""Runs side by side: what differs between them, and the best value of each metric."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truestep.core.metric_direction import Better, best_mode_of_metric
from truestep.core.result_display import RenderableType, Result
from truestep.report.best import best_metric_value, compared_run_metrics
from truestep.report.run_record import RunRecord
from truestep.report.settings_tables import setting_leaves


@dataclass(frozen=True, kw_only=True)
class SettingDifference:
    """A setting that is not the same in all runs; `values` in the order of the runs, None where a run has none."""

    setting: str
    values: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class BestMetricValue:
    """The best value of a metric in one run, and the first step that had it."""

    value: float
    step: int


@dataclass(frozen=True, kw_only=True)
class BestMetricValues:
    """The best value of a metric in each run, and the number of the run that has the best of all."""

    metric: str
    better: Better
    values: tuple[BestMetricValue | None, ...]
    best_run: int


@dataclass(frozen=True, kw_only=True)
class RunComparison(Result):
    """One or several runs; `differences` are those of what was given, `circumstances` those of machine, code and choices."""

    runs: tuple[str, ...]
    differences: tuple[SettingDifference, ...]
    circumstances: tuple[SettingDifference, ...]
    best: tuple[BestMetricValues, ...]
    steps: tuple[int, ...]
    elapsed_seconds: tuple[float, ...]

    def __rich__(self) -> RenderableType:
        from truestep.report.comparison_screen import run_comparison_table

        return run_comparison_table(self)


def compare_runs(records: Sequence[RunRecord]) -> RunComparison:
    """Compare runs, in the order in which they are given."""
    return RunComparison(
        runs=tuple(record.name for record in records),
        differences=tuple(_setting_differences([given_settings(record) for record in records])),
        circumstances=tuple(_setting_differences([run_circumstances(record) for record in records])),
        best=tuple(_best_values(records)),
        steps=tuple(record.last_step for record in records),
        elapsed_seconds=tuple(record.elapsed_seconds for record in records),
    )


def _setting_differences(settings: Sequence[Mapping[str, Any]]) -> Iterator[SettingDifference]:
    for name in dict.fromkeys(name for each in settings for name in each):
        values = tuple(each.get(name) for each in settings)
        # As JSON: a setting may be a list or a dict, which a set can't hold.
        if len({json.dumps(value, sort_keys=True, default=str) for value in values}) > 1:
            yield SettingDifference(setting=name, values=values)


def _best_values(records: Sequence[RunRecord]) -> Iterator[BestMetricValues]:
    for metric in compared_run_metrics(record.curves for record in records):
        way = best_mode_of_metric(metric)
        found = [
            best_metric_value(metric, record.curves[metric]) if metric in record.curves else None
            for record in records
        ]
        values = tuple(BestMetricValue(value=each.value, step=each.step) if each else None for each in found)
        known = [(each.value, number) for number, each in enumerate(values) if each]
        if way is not None and known:
            sign = -1 if way == "max" else 1
            _, best_run = min((sign * value, number) for value, number in known)
            yield BestMetricValues(metric=metric, better=way, values=values, best_run=best_run)


NOT_OF_THE_RUN = ("schema_version",)
GIVEN = "given to "  # begins the reason of a choice that was the user's


def given_settings(record: RunRecord) -> dict[str, Any]:
    """Return what the run was made with: hyper-parameters under their own names, and what learners and data were given."""
    found = record.config if isinstance(record.config, Mapping) else {}
    own = found.get("config")
    flat = dict(
        setting_leaves({key: each for key, each in found.items() if key not in (*NOT_OF_THE_RUN, "config")})
    )
    flat |= dict(setting_leaves(own)) if isinstance(own, Mapping) else {} if own is None else {"config": own}
    given = [each for each in record.choices if _is_given_by_user(each)]
    return flat | {
        name: value
        for each in given
        for name, value in _split_call_into_options(str(each["name"]), each["value"])
    }


def run_circumstances(record: RunRecord) -> dict[str, Any]:
    """Return what the run depends on besides: machine, code, and what was chosen for it."""
    machine = dict(setting_leaves(record.environment)) if isinstance(record.environment, Mapping) else {}
    chosen = {
        str(each.get("name")): each.get("value") for each in record.choices if not _is_given_by_user(each)
    }
    return machine | chosen


def _is_given_by_user(choice: Mapping[str, Any]) -> bool:
    return str(choice.get("reason")).startswith(GIVEN) and {"name", "value"} <= choice.keys()


def _split_call_into_options(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the options of `AdamW(lr=0.1, eps=1e-08)` each by itself, so that what differs stands alone."""
    try:
        call = ast.parse(str(value), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        call = None
    if not (isinstance(call, ast.Call) and not call.args and all(each.arg for each in call.keywords)):
        yield name, value
        return
    yield name, ast.unparse(call.func)
    for each in call.keywords:
        yield f"{name}: {each.arg}", ast.unparse(each.value)
