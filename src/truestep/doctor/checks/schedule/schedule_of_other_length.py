# SPDX-License-Identifier: Apache-2.0
"""Training at a rate of nothing, or at one that never gets there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG, RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

SHARE = 1e-5  # of the largest rate so far: float32 weights hardly move by it
_FEW = 5  # steps at a rate that has fallen on
_FIGURES = 3  # that a plateau is given; the first may be from before any evaluation
LEAST = 100  # steps at such a rate; the end of a cosine has a few
SHARE_OF_ALL = 1e-6  # of the largest rate: at a fifth of all steps it is told of, however few these are
LEAST_AT_ZERO = (
    10  # steps that move nothing, a fifth of all so far, and as many of a schedule, but for its last
)
CLIMB = 7  # steps of a schedule that is stepped within few passes
PASSES = 3  # with fewer a schedule that rises and falls may look as if it only rose
GIVEN = 0.9  # of the rate that the optimizer was given


@dataclass
class LearningRateFall:
    """How high an optimizer's rate has been, since when it is next to nothing, and how low it was then."""

    highest: float = 0.0
    since: int | None = None
    rate: float = 0.0
    steps_at_zero: int = 0  # of a schedule


class ScheduleOfOtherLength(Watcher):
    """The learning rate is almost nothing while the training goes on, falls by what is no number, or rises until the end.

    Why: the weights no longer change, or all of the training runs at a fraction of its rate. Often a schedule meant for
    epochs is stepped in every batch, or one that counts updates once in an epoch.

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
    A warm-up takes a twentieth of the updates, counted in what the schedule is stepped by.

    Evidence: the plain form of row 11 of docs/mistakes.md.
    """

    code = "SCHED010"

    def __init__(self) -> None:
        self.falls: dict[int, LearningRateFall] = {}
        self.schedules: dict[int, Place] = {}  # where each is stepped, by its optimizer's record
        self.stepped: dict[int, Place] = {}  # the same, by the schedule
        self.rates: dict[int, list[float]] = {}  # of its first group, before each pass with updates
        self.num_steps: dict[int, int] = {}
        # rates at the schedule's steps, as long as each is the highest so far
        self.climbs: dict[int, list[float]] = {}

    def on_schedule(self, history: WatchHistory, scheduler: Any, place: Place) -> None:
        """Remember the line, and the rate."""
        record = history.record_of(getattr(scheduler, "optimizer", None))
        self.schedules[id(record)] = place
        self.stepped[id(scheduler)] = place
        if record is not None:
            rate = _first_learning_rate(record)
            fall = self.falls.setdefault(id(record), LearningRateFall())
            fall.steps_at_zero = 0 if rate else fall.steps_at_zero + 1
            climb = self.climbs.setdefault(id(record), [])
            # infinite: it has fallen
            climb[:] = [*climb, rate][-CLIMB:] if not climb or climb[-1] < rate else [math.inf]

    def on_epoch(self, history: WatchHistory, source: Any, place: Place) -> None:
        """Remember the rates with which a pass begins."""
        self._note_rates(history)

    def _note_rates(self, history: WatchHistory) -> None:
        """Note the rates of those that have stepped since: behind a pass that only evaluates they are the same."""
        for record in history.records.values():
            key = id(record)
            if record.num_steps > self.num_steps.get(key, -1):
                self.num_steps[key] = record.num_steps
                self.rates.setdefault(key, []).append(_first_learning_rate(record))

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Look at the rates of a step."""
        yield from self._report_findings(record)

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
        for record in history.stepped_optimizers():
            yield from self._report_findings(record)
        if not history.is_cut_short:
            self._note_rates(history)
            yield from self._report_rates_only_rising(history)

    def _report_rates_only_rising(self, history: WatchHistory) -> Observations:
        """Report a rate that has only risen."""
        made_at = {
            id(history.record_of(each.optimizer)): at
            for each, at in history.schedules
            if hasattr(each, "optimizer")
        }
        for record in history.stepped_optimizers():
            key, group = id(record), record.optimizer.param_groups[0]
            rates, climb = self.rates.get(key, []), self.climbs.get(key, [])
            if len(rates) <= PASSES and len(climb) == CLIMB:
                rates = climb
            given = float(group.get("max_lr", group.get("initial_lr", 0.0)))
            rises = all(one < other for one, other in pairwise(rates))
            at = self.schedules.get(key, made_at.get(key))
            if at is not None and len(rates) > PASSES and rises and rates[-1] < GIVEN * given:
                text = f"The learning rate rose until the end, to {rates[-1]:.3g} of {given:.3g}: the warm-up never ended."
                yield Observation(at, text, RISK, {"learning_rates": rates, "given": given})

    def _report_findings(self, record: OptimizerRecord) -> Observations:
        rates = [float(group["lr"]) for group in record.optimizer.param_groups if "lr" in group]
        fall = self.falls.setdefault(id(record), LearningRateFall())
        fall.highest = max([fall.highest, *rates])
        if not rates or max(rates) > SHARE * fall.highest:
            fall.since = None
        elif fall.since is None:
            fall.since, fall.rate = record.num_steps, max(rates)
        elif fall.highest and record.num_steps - fall.since >= _max_steps_at_low_rate(
            fall, record.num_steps, max(rates)
        ):
            text = (
                f"The learning rate fell from {fall.highest:.3g} to {fall.rate:.3g} by step {fall.since}; "
                f"{record.num_steps - fall.since} steps later it is {max(rates):.3g}, and training goes on."
            )
            fall.highest = 0.0  # said once
            at = self.schedules.get(id(record), record.place)
            yield Observation(at, text, BUG, {"step": record.num_steps, "learning_rates": rates})


def _max_steps_at_low_rate(fall: LearningRateFall, num_steps: int, rate: float) -> float:
    """Return how many steps at such a rate are too many: fewer where it is nothing, or has gone on falling."""
    if 0 < rate <= SHARE_OF_ALL * fall.highest:
        return max(_FEW, num_steps / 5)
    return max(LEAST_AT_ZERO, num_steps / 5) if fall.steps_at_zero >= LEAST_AT_ZERO else LEAST


def _first_learning_rate(record: OptimizerRecord) -> float:
    return float(record.optimizer.param_groups[0].get("lr", 0.0))
