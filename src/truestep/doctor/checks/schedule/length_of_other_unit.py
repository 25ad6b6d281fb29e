# SPDX-License-Identifier: Apache-2.0
"""A schedule whose length does not fit how often it is stepped."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

MANY = 3  # updates in a pass: with fewer, updates and passes are hardly told apart
PASSES = 2
_NEAR = 0.2  # relative: a length may leave out a warm-up


@dataclass(frozen=True)
class ScheduleRun:
    """What a schedule was meant to last, and what the run gave it."""

    first: int  # its steps up to its first change
    last: int  # up to its end
    num_steps: int
    num_updates: int
    num_passes: int

    def told(self) -> str | None:
        """Return what does not fit; None where all may be as it was meant."""
        per_pass = self.num_updates / self.num_passes
        if per_pass < MANY or self.num_passes < PASSES or self.num_steps < PASSES:
            return None
        if _is_near(self.num_steps, self.num_updates) and _is_near(self.last, self.num_passes):
            passes = f"{self.num_passes} passes over the data"
            return f"lasts {self.last} steps, as for {passes}, and was stepped in each of {self.num_updates} updates"
        longer = max(MANY * self.num_steps, per_pass) < self.first <= self.num_updates * (1 + _NEAR)
        if _is_near(self.num_steps, self.num_passes) and longer:
            return (
                f"changes the rate after {self.first} steps, as for {self.num_updates} updates, and was stepped "
                f"{self.num_steps} times, once in a pass"
            )
        return None


class LengthOfOtherUnit(Watcher):
    """A schedule's length counts passes and it is stepped in each update, or the other way round.

    Why: a cosine of as many steps as there are epochs goes down and up again in the first of them; one of as many steps as
    there are updates, stepped once per epoch, never leaves its beginning.

    Bad:
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
        for epoch in range(epochs):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                sched.step()  # here

    Good:
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs * len(loader))
        for epoch in range(epochs):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                sched.step()

    Fix: count the length in what it is stepped by: epochs * len(loader) in every update, epochs in every epoch.
    """

    code = "SCHED013"

    def __init__(self) -> None:
        self.stepped_at: dict[int, Place] = {}
        self.begun: list[int] = []  # updates before each pass over whatever

    def on_schedule(self, history: WatchHistory, scheduler: Any, place: Place) -> None:
        """Remember where it is stepped."""
        self.stepped_at[id(scheduler)] = place

    def on_epoch(self, history: WatchHistory, source: Any, place: Place) -> None:
        """Count the passes in which there are updates."""
        if not self.begun or history.num_steps > self.begun[-1]:
            self.begun.append(history.num_steps)

    def on_finish(self, history: WatchHistory) -> Observations:
        """Compare each schedule's length with what it was given."""
        num_passes = sum(1 for each in self.begun if each < history.num_steps)
        if history.is_cut_short or not num_passes:
            return
        inner = {id(each) for outer, _ in history.schedules for each in getattr(outer, "_schedulers", ())}
        for scheduler, made_at in history.schedules:
            record = history.record_of(getattr(scheduler, "optimizer", None))
            first, last = _length_of(scheduler)
            if record is None or not first or id(scheduler) in inner:
                continue
            run = ScheduleRun(first, last, scheduler.last_epoch, record.num_steps, num_passes)
            if (told := run.told()) is not None:
                at = self.stepped_at.get(id(scheduler), made_at)
                text = f"{type(scheduler).__name__} {told}."
                yield Observation(at, text, RISK, {**asdict(run), "made_at": str(made_at)})


def _length_of(scheduler: Any) -> tuple[int, int]:
    """Return a schedule's steps up to its first change and up to its end; 0 where it has none."""
    milestones = getattr(scheduler, "milestones", None) or getattr(scheduler, "_milestones", None)
    if milestones:
        is_warm_up = hasattr(scheduler, "_milestones")
        return min(milestones), 0 if is_warm_up else max(milestones)
    for name in ("T_max", "total_steps", "total_iters", "step_size"):
        length = getattr(scheduler, name, None)
        if isinstance(length, int) and not hasattr(
            scheduler, "end_factor"
        ):  # a warm-up's or a cool-down's own
            return length, length
    return 0, 0


def _is_near(one: float, other: float) -> bool:
    return abs(one - other) <= max(_NEAR * other, 1)
