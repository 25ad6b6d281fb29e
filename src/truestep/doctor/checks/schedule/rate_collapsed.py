# SPDX-License-Identifier: Apache-2.0
"""Training at a rate of nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

SHARE = 1e-5  # of the largest rate so far: float32 weights hardly move by it
_FIGURES = 3  # that a plateau is given; the first may be from before any evaluation
LEAST = 100  # steps at such a rate; the end of a cosine has a few


@dataclass
class Fall:
    """How high an optimizer's rate has been, since when it is next to nothing, and how low it was then."""

    highest: float = 0.0
    since: int | None = None
    rate: float = 0.0


class RateCollapsed(Watcher):
    """The learning rate has fallen to almost nothing, and the training goes on; or it falls by a figure that is no number.

    Why: the weights no longer change: the rest of the run is for nothing. Often a schedule meant for epochs is stepped in
    every batch.

    Bad:
        sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        for _ in range(50):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                sched.step()  # here

    Good:
        sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
        for _ in range(50):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            sched.step()

    Fix: step the schedule once per epoch, or count its length in steps; give it a floor (eta_min, min_lr).

    Evidence: the plain form of row 11 of docs/mistakes.md.
    """

    code = "SCHED010"

    def __init__(self) -> None:
        self.falls: dict[int, Fall] = {}
        self.schedules: dict[int, Place] = {}  # where each is stepped, by its optimizer's record
        self.stepped: dict[int, Place] = {}  # the same, by the schedule

    def on_schedule(self, history: WatchHistory, scheduler: Any, place: Place) -> None:
        """Remember the line."""
        self.schedules[id(history.record_of(getattr(scheduler, "optimizer", None)))] = place
        self.stepped[id(scheduler)] = place

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Look at the rates of a step."""
        yield from self._judge(record)

    def on_finish(self, history: WatchHistory) -> Observations:
        """Look at those of the last step; and at the best figure of a plateau, which is infinite until a finite one comes."""
        for scheduler, made in history.schedules:
            best, num_figures = getattr(scheduler, "best", None), getattr(scheduler, "last_epoch", 0)
            if (
                isinstance(best, float)
                and best == getattr(scheduler, "mode_worse", None)
                and num_figures >= _FIGURES
            ):
                text = (
                    f"A plateau was given {num_figures} figures, and none of them is a finite number: it makes the rate smaller "
                    "whatever comes of the training. Give it the figure of an evaluation."
                )
                at = self.stepped.get(id(scheduler), made)
                yield Observation(at, text, BUG)
        for record in history.stepping():
            yield from self._judge(record)

    def _judge(self, record: OptimizerRecord) -> Observations:
        rates = [float(group["lr"]) for group in record.optimizer.param_groups if "lr" in group]
        fall = self.falls.setdefault(id(record), Fall())
        fall.highest = max([fall.highest, *rates])
        if not rates or max(rates) > SHARE * fall.highest:
            fall.since = None
        elif fall.since is None:
            fall.since, fall.rate = record.num_steps, max(rates)
        elif record.num_steps - fall.since >= LEAST and fall.highest:
            text = (
                f"The learning rate fell from {fall.highest:.3g} to {fall.rate:.3g} by step {fall.since}; "
                f"{record.num_steps - fall.since} steps later it is {max(rates):.3g}, and training goes on."
            )
            fall.highest = 0.0  # said once
            at = self.schedules.get(id(record), record.place)
            yield Observation(at, text, BUG, {"step": record.num_steps, "learning_rates": rates})
