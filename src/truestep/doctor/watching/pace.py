# SPDX-License-Identifier: Apache-2.0
"""When a watch looks: the first steps, two in so many later, and whatever may be an evaluation."""

from typing import Any

from truestep.doctor.finding import Place
from truestep.doctor.watching.scene import PERIOD, WINDOW, OptimizerRecord

EVALUATIONS = 3  # so many that eval() announces wake the watch
MAX_QUIET_LINES = 64  # so many lines that switch gradients off


class Pace:
    """Counts the steps, and knows what would wake the watch."""

    def __init__(self) -> None:
        self._counted: OptimizerRecord | None = None
        self._uncounted = 0  # steps of other optimizers in a row
        self._evaluations = 0
        self._sources: set[int] = set()
        self._quiet_lines: set[Place] = set()

    def counts(self, record: OptimizerRecord) -> bool:
        """Tell whether this optimizer's steps count: of several the first that steps, until its training is over."""
        self._uncounted = 0 if self._counted is record else self._uncounted + 1
        if self._counted is None or self._uncounted > WINDOW:
            self._counted = record
        return self._counted is record

    def looks_after(self, steps: int) -> bool:
        """Tell whether to look at what follows so many steps."""
        return steps < WINDOW or steps % PERIOD in (0, 1)

    def wakes_for_evaluation(self) -> bool:
        """Tell whether an eval() is still to be watched."""
        self._evaluations += 1
        return self._evaluations <= EVALUATIONS

    def is_new(self, source: Any) -> bool:
        """Tell whether a loader or a sampler begins for the first time."""
        new = id(source) not in self._sources
        self._sources.add(id(source))
        return new

    def is_new_line(self, place: Place) -> bool:
        """Tell whether gradients were never switched off at this line before."""
        if place in self._quiet_lines or len(self._quiet_lines) >= MAX_QUIET_LINES:
            return False
        self._quiet_lines.add(place)
        return True
