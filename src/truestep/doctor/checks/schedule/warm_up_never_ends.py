# SPDX-License-Identifier: Apache-2.0
"""A warm-up that is longer than the training."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

STEPS = 7  # of a schedule that is stepped within few passes
PASSES = 3  # with fewer a schedule that rises and falls may look as if it only rose
SHARE = 0.9  # of the rate that the optimizer was given


class WarmUpNeverEnds(Watcher):
    """The learning rate rises until the training ends, and never comes to what the optimizer was given.

    Why: the warm-up is longer than the training, often because it counts updates and is stepped once in an epoch: all of
    the training runs at a fraction of its rate.

    Bad:
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 1000))
        for epoch in range(epochs):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                sched.step()  # here

    Good:
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 4))
        for epoch in range(epochs):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                sched.step()

    Fix: a warm-up of a twentieth of the updates, counted in what the schedule is stepped by.

    Evidence: the plain form of row 11 of docs/mistakes.md.
    """

    code = "SCHED014"

    def __init__(self) -> None:
        self.stepped_at: dict[int, Place] = {}  # by the identity of the optimizer's record
        self.rates: dict[int, list[float]] = {}  # of its first group, before each pass with updates
        self.num_steps: dict[int, int] = {}
        self.climbs: dict[
            int, list[float]
        ] = {}  # rates at the schedule's steps, as long as each is the highest so far

    def on_schedule(self, history: WatchHistory, scheduler: Any, place: Place) -> None:
        """Remember where the rate is moved."""
        record = history.record_of(scheduler.optimizer)
        key, rate = id(record), float(scheduler.optimizer.param_groups[0].get("lr", 0.0))
        self.stepped_at[key] = place
        climb = self.climbs.setdefault(key, [])
        if not climb or climb[-1] < rate:
            climb[:] = [*climb, rate][-STEPS:]
        else:
            climb[:] = [math.inf]  # it has fallen

    def on_epoch(self, history: WatchHistory, source: Any, place: Place) -> None:
        """Remember the rates with which a pass begins."""
        self._note_rates(history)

    def _note_rates(self, history: WatchHistory) -> None:
        """Note the rates of those that have stepped since: behind a pass that only evaluates they are the same."""
        for record in history.records.values():
            key = id(record)
            if record.num_steps > self.num_steps.get(key, -1):
                self.num_steps[key] = record.num_steps
                self.rates.setdefault(key, []).append(float(record.optimizer.param_groups[0].get("lr", 0.0)))

    def on_finish(self, history: WatchHistory) -> Observations:
        """Report a rate that has only risen."""
        if history.is_cut_short:
            return
        made_at = {
            id(history.record_of(each.optimizer)): at
            for each, at in history.schedules
            if hasattr(each, "optimizer")
        }
        self._note_rates(history)
        for record in history.stepping():
            key, group = id(record), record.optimizer.param_groups[0]
            rates = self.rates.get(key, [])
            climb = self.climbs.get(key, [])
            if len(rates) <= PASSES and len(climb) == STEPS:
                rates = climb
            given = float(group.get("max_lr", group.get("initial_lr", 0.0)))
            rises = all(one < other for one, other in pairwise(rates))
            at = self.stepped_at.get(key, made_at.get(key))
            if at is not None and len(rates) > PASSES and rises and rates[-1] < SHARE * given:
                text = f"The learning rate rose until the end, to {rates[-1]:.3g} of {given:.3g}: the warm-up never ended."
                yield Observation(at, text, RISK, {"learning_rates": rates, "given": given})
