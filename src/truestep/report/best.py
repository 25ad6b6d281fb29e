# SPDX-License-Identifier: Apache-2.0
"""The best value of a metric, where its name tells which way is better."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from truestep.core.charts.curve import ChartCurve, ChartExtreme
from truestep.core.metric_direction import Better, best_mode_of_metric, words_of_metric

EVALUATED = {"val", "valid", "validation", "test", "eval", "evaluation", "dev"}


class MetricExtremes(NamedTuple):
    """The min and the max of a metric, each with its step; None where no value was finite."""

    lowest: ChartExtreme | None
    highest: ChartExtreme | None


def best_metric_value(
    name: str, curve: ChartCurve | MetricExtremes, way: Better | None = None
) -> ChartExtreme | None:
    """Return the best value of a metric and its step; `way`: which is better, where it was told."""
    return {"max": curve.highest, "min": curve.lowest, None: None}[way or best_mode_of_metric(name)]


def declared_best_metric(config: object) -> tuple[str, Better] | None:
    """Return the metric that a run saves its best checkpoint by, and which way is better, as its configuration has it."""
    told = config.get("best") if isinstance(config, dict) else None
    if not isinstance(told, dict) or told.get("mode") not in ("max", "min"):
        return None
    return str(told.get("metric")), told["mode"]


def metric_to_compare_runs_by(curves: Mapping[str, ChartCurve] | Mapping[str, MetricExtremes]) -> str | None:
    """Return the metric that runs are best compared by: of an evaluation before training, a score before a loss.

    None where there are losses of training alone and several of them: a GAN's are against each other, and say nothing of it.
    """
    known = [name for name, curve in curves.items() if best_metric_value(name, curve) is not None]
    best = min(known, key=_metric_comparison_order, default=None)
    return (
        None
        if best is None or (_metric_comparison_order(best) == _LOSS_OF_TRAINING and len(known) > 1)
        else best
    )


def compared_run_metrics(names: Iterable[Iterable[str]]) -> list[str]:
    """Return the names of metrics that have a best value, the ones to compare by first."""
    found = dict.fromkeys(name for each in names for name in each if best_mode_of_metric(name))
    return sorted(found, key=_metric_comparison_order)


_LOSS_OF_TRAINING = (True, True)


def _metric_comparison_order(name: str) -> tuple[bool, bool]:
    words = words_of_metric(name)
    is_score = "loss" not in words
    is_of_training = bool(words & {"train", "training"}) or not (is_score or words & EVALUATED)
    return is_of_training, not is_score
