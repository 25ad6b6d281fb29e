# SPDX-License-Identifier: Apache-2.0
"""How many children experiments may have, and how long they may take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError

MOST_CHILDREN = 30  # at a place
MOST_SECONDS = 20.0  # of all places
MOST_SECONDS_OF_CHILD = 10.0


class ExperimentBudget:
    """What is left of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.num_children = 0
        self._at_place = 0

    def reset_child_count(self) -> None:
        """At another place there may be as many children again."""
        self._at_place = 0

    def seconds_left(self) -> float:
        """Return how long the next child may take.

        Raises:
            ExperimentNotTriedError: there may be none.
        """
        if self._at_place >= MOST_CHILDREN:
            raise ExperimentNotTriedError(f"{MOST_CHILDREN} children were forked here already")
        left = MOST_SECONDS - self.seconds
        if left <= 0:
            raise ExperimentNotTriedError(f"the experiments had taken {self.seconds:.0f} s by then")
        return min(left, MOST_SECONDS_OF_CHILD)

    @contextmanager
    def child(self) -> Iterator[None]:
        """Within this, a child lives."""
        started = time.monotonic()
        self._at_place += 1
        self.num_children += 1
        try:
            yield
        finally:
            self.seconds += time.monotonic() - started
