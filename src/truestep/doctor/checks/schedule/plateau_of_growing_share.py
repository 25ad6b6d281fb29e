# SPDX-License-Identifier: Apache-2.0
"""A plateau schedule that takes progress for a standstill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

LEAST = 4  # values of the metric
MOST_EXAMPLES = 2000  # of which a value may be the share
_WHOLE = 1e-6  # so near to whole numbers lie shares of so many examples, also in float32


class PlateauOfGrowingShare(Watcher):
    """ReduceLROnPlateau waits for the lowest value, and is given a share of the examples that grows.

    Why: an accuracy that improves counts as a standstill, so the rate is cut just when training goes well.

    Bad:
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=2)
        for correct in (5, 7, 11, 12, 14):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            sched.step(correct / 16)  # here

    Good:
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max", patience=2)
        for correct in (5, 7, 11, 12, 14):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            sched.step(correct / 16)

    Fix: mode="max" for an accuracy, or give it the validation loss.
    """

    code = "SCHED016"

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[Any, Place]] = {}

    def on_schedule(self, history: WatchHistory, scheduler: Any, place: Place) -> None:
        """Remember schedules that wait for a metric."""
        if hasattr(scheduler, "patience"):
            self.waiting[id(scheduler)] = scheduler, place

    def on_finish(self, history: WatchHistory) -> Observations:
        """Report a share that grows, for a schedule that waits for the lowest."""
        for scheduler, place in self.waiting.values():
            values = history.metrics.get(id(scheduler), [])
            if scheduler.mode == "min" and _is_growing(values) and (count := _share_of(values)):
                text = (
                    f"The metric grew from {values[0]:.3g} to {values[-1]:.3g}, a share of {count} examples by its values, "
                    "and the schedule waits for the lowest."
                )
                yield Observation(place, text, RISK, {"values": values[:20], "number": count})


def _is_growing(values: list[float]) -> bool:
    """Tell whether the later half lies above the earlier one, and no value falls far back."""
    half = len(values) // 2
    if len(values) < LEAST or not all(0 <= each <= 1 for each in values):
        return False
    before, after = sum(values[:half]) / half, sum(values[-half:]) / half
    return after > before and values[-1] > values[0]


def _share_of(values: list[float]) -> int | None:
    """Return the fewest examples that all values are shares of; None where they are no shares."""
    different = set(values)
    if len(different) < LEAST - 1:
        return None
    for count in range(2, MOST_EXAMPLES + 1):
        if all(abs(each * count - round(each * count)) <= _WHOLE * count for each in different):
            return count
    return None
