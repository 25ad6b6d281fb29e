# SPDX-License-Identifier: Apache-2.0
"""What ended this rank's loop last: code outside may catch it, and the others would never learn why this rank came elsewhere."""

from collections.abc import Callable

ENDED_ITS_LOOP = "behind what ended its loop: "


class LeftLoop:
    """What ended a loop of this rank, as long as nothing has been exchanged since but what is under way now."""

    def __init__(self, num_begun: Callable[[], int]) -> None:
        self._num_begun = num_begun
        self._at, self._what, self._status = -2, "", 1

    def note(self, what: str, status: int | None) -> None:
        """Note it; of several loops within each other it is the inner one that tells."""
        if self._at != self._num_begun():
            self._at, self._what, self._status = self._num_begun(), what, status or 1

    def told(self) -> str:
        """Return what is said of it beside this rank's place, or nothing."""
        return f", {ENDED_ITS_LOOP}{self._what}" if self._is_recent else ""

    @property
    def status(self) -> int:
        """The status that this process exits with where the ranks can't go on: that of its `sys.exit`, never 0."""
        return self._status if self._is_recent else 1

    @property
    def _is_recent(self) -> bool:
        return self._num_begun() - self._at <= 1
