# SPDX-License-Identifier: Apache-2.0
"""A schedule for an optimizer that never steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


class ScheduleOfIdleOptimizer(Watcher):
    """A schedule is stepped whose optimizer never steps, while another one does.

    Why: the optimizer was made anew (or there are two): the one that trains keeps its first rate.

    Bad:
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            sched.step()  # here

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            sched.step()

    Fix: make the schedule for the optimizer that steps.

    Evidence: the plain form of row 13 of docs/mistakes.md.
    """

    code = "SCHED007"

    def __init__(self) -> None:
        self.stepped: dict[int, tuple[Any, Place]] = {}

    def on_schedule(self, history: WatchHistory, scheduler: Any, place: Place) -> None:
        """Remember it."""
        self.stepped.setdefault(id(scheduler), (scheduler, place))

    def on_finish(self, history: WatchHistory) -> Observations:
        """Report the schedules whose optimizer has not stepped at all."""
        active = history.stepping()
        for scheduler, place in self.stepped.values():
            record = history.record_of(scheduler.optimizer)
            if active and (record is None or not record.num_steps):
                yield Observation(place, "The schedule belongs to an optimizer that never steps.", BUG)
