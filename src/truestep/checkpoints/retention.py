# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints stay. Imports no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from truestep.checkpoints.manifest import CheckpointSummary
from truestep.core.errors import OptionError, check_choice, check_number
from truestep.core.metric_direction import Better, missing_best_mode_message


@dataclass(frozen=True, kw_only=True)
class Retention:
    """What to keep: the last few, the best few by a metric, and every one whose step is a multiple.

    Whatever is asked for, the newest healthy checkpoint stays too, since a rollback needs it. Those saved
    in the middle of a step, after an exception, stay until a whole one is newer. Damaged ones are never
    removed.
    """

    last: int = 2
    best: int = 0
    best_metric: str | None = None
    best_mode: Better | None = None
    """None stands for "max"; a name that tells of a loss or an error needs one of the two."""
    every: int | None = None

    def __post_init__(self) -> None:
        check_number("ts.Retention", "last", self.last, example=2)
        check_number("ts.Retention", "best", self.best, example=1)
        if self.every is not None:
            check_number("ts.Retention", "every", self.every, example=1000)
        if self.last < 1 or self.best < 0 or (self.every is not None and self.every < 1):
            raise OptionError(
                f"Retention(last={self.last}, best={self.best}, every={self.every}): last and every are at least 1 "
                "and best at least 0, because the newest checkpoint is what a killed run goes on from."
            )
        if self.best and self.best_metric is None:
            raise OptionError(
                f"Retention(best={self.best}) does not say by what: add best_metric='accuracy', say, and "
                "best_mode='max' or 'min'."
            )
        check_choice("ts.Retention", "best_mode", self.best_mode, ("min", "max", None))
        called = f"ts.Retention(best_metric={self.best_metric!r})"
        if self.best_metric and (said := missing_best_mode_message(called, self.best_metric, self.best_mode)):
            raise OptionError(said)

    def kept(self, summaries: Sequence[CheckpointSummary]) -> set[int]:
        """Return the sequence numbers of those to keep."""
        newest_first = sorted(summaries, key=lambda summary: -summary.sequence)
        # Only whole ones count: an interrupted step must not push out the last state that a run can go on from.
        whole = [summary for summary in newest_first if summary.complete]
        keep = whole[: self.last] + self.best_of(whole)
        keep += [summary for summary in whole if summary.healthy][:1]
        keep += [summary for summary in whole if self.every and summary.step % self.every == 0]
        newest_whole = whole[0].sequence if whole else -1
        keep += [summary for summary in newest_first if summary.sequence > newest_whole]
        return {summary.sequence for summary in keep}

    def best_of(self, newest_first: Sequence[CheckpointSummary]) -> list[CheckpointSummary]:
        """Return the best by the metric, best first; of equals the oldest, which stays whatever comes after it."""
        # A NaN compares as neither less nor more, and would end up anywhere in the order.
        measured = [summary for summary in newest_first if math.isfinite(self._best_metric_value(summary))]
        sign = 1 if self.best_mode == "min" else -1
        return sorted(measured, key=lambda each: (sign * self._best_metric_value(each), each.sequence))[
            : self.best
        ]

    def _best_metric_value(self, summary: CheckpointSummary) -> float:
        value = summary.metrics.get(self.best_metric or "", math.nan)
        return float(value) if isinstance(value, int | float) else math.nan
