# SPDX-License-Identifier: Apache-2.0
"""When a watch looks: the first steps, then two in so many, later two in more, and whatever may be an evaluation."""

from typing import Any

from truestep.core.trial_runs import TrialOver
from truestep.doctor.finding import Place
from truestep.doctor.runtime.history import WINDOW

EARLY = 32  # of the steps up to the first period, two in so many: most scripts that are tried out end there
PERIOD = 256  # of the later steps, two in so many: one compares with the one before
EVALUATIONS = 3  # so many that eval() announces wake the watch
MAX_QUIET_LINES = 64  # so many lines that switch gradients off


class StopWatching(TrialOver):
    """Ends the script once the wanted number of steps is done."""


def num_steps_watched(total: int) -> int:
    """Return how many of so many steps are looked at."""
    periods, rest = divmod(max(total - PERIOD, 0), PERIOD)
    pace = WatchPace()
    return sum(map(pace.looks_after, range(min(total, PERIOD)))) + 2 * periods + min(rest, 2)


class WatchPace:
    """Knows after which steps to look, and what would wake the watch."""

    def __init__(self, max_steps: int | None = None) -> None:
        self.max_steps = max_steps
        self._evaluations = 0
        self._passes: dict[int, int] = {}  # over each loader or sampler, by identity
        self._source: int | None = None  # the one that began last
        self._trained: set[int] = set()  # those within whose passes steps were made
        self._quiet_lines: set[Place] = set()

    def looks_after(self, num_steps: int) -> bool:
        """Tell whether to look at what follows so many steps.

        Raises:
            StopWatching: no more were wanted.
        """
        if self.max_steps is not None and num_steps >= self.max_steps:
            raise StopWatching
        if self._source is not None:
            self._trained.add(self._source)
            self._source = None
        return num_steps < WINDOW or num_steps % (EARLY if num_steps < PERIOD else PERIOD) in (0, 1)

    def wakes_for_evaluation(self) -> bool:
        """Tell whether an eval() is still to be watched."""
        self._evaluations += 1
        return self._evaluations <= EVALUATIONS

    def wakes_for_pass(self, source: Any) -> bool:
        """Tell whether to look at a loader's or sampler's pass: its first, and the next if steps were made in that."""
        passes = self._passes[id(source)] = self._passes.get(id(source), 0) + 1
        trained = id(source) in self._trained
        self._source = id(source)
        return passes == 1 or (passes == 2 and trained)

    def is_new_line(self, place: Place) -> bool:
        """Tell whether gradients were never switched off at this line before."""
        if place in self._quiet_lines or len(self._quiet_lines) >= MAX_QUIET_LINES:
            return False
        self._quiet_lines.add(place)
        return True
