# SPDX-License-Identifier: Apache-2.0
"""When a model is looked at: each so many updates, and by default only while looks take a small share of the time."""

import time
from collections import deque
from typing import Any, Literal

from truestep.core.errors import OptionError, check_number

Every = int | Literal["auto"]
USUAL = 64
SHARE = 0.01  # of the time, that looks may take by default


def check_look_interval(every: Any, place: str, name: str, *, least: int, or_none: bool) -> None:
    """Raise an OptionError unless it is "auto" or a number of updates from one look to the next."""
    if every == "auto":
        return
    check_number(place, name, every, example=USUAL)
    if every < least and not (or_none and every == 0):
        never = ", 0 for none" if or_none else ""
        raise OptionError(
            f"{place}({name}={every}): give updates from one look to the next, at least {least}{never}, or "
            f'"auto": one look in {USUAL} updates, fewer where they would take over {SHARE:.0%} of the time.'
        )


class LookCostClock:
    """Adds up what its `with` blocks take."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._begun


class AdaptiveLookInterval:
    """Says whether the next update is looked at."""

    def __init__(self, every: Every, window: int) -> None:
        self.every = USUAL if every == "auto" else every
        self._is_free = every != "auto"
        self._begun = time.perf_counter()
        self._num = 0
        self.clock = LookCostClock()
        """Of all that looks do."""
        self._looked_at: deque[int] = deque(maxlen=window)

    def allows(self, update: int, share: float = SHARE) -> bool:
        """Whether update number `update` is due, and one more look of the usual cost stays within the share of the time."""
        if update % self.every:
            return False
        elapsed = time.perf_counter() - self._begun
        return self._is_free or self.clock.seconds * (self._num + 1) <= share * elapsed * self._num

    def looked(self, update: int) -> None:
        """Note which update is looked at."""
        self._looked_at.append(update)
        self._num += 1

    @property
    def span(self) -> int:
        """How many updates the looks of the window stand for."""
        return self._looked_at[-1] - self._looked_at[0] + self.every
