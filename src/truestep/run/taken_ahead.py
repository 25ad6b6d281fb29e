# SPDX-License-Identifier: Apache-2.0
"""Noticing batches that are asked for before the ones before them were worked on.

A batch counts as done when the next is asked for. `zip(batches, batches)`, `list(batches)` and gradients that the loop gathers
itself ask earlier: there a run is saved behind the update only. `pairwise` and prefetching by hand never come to such a moment.
"""

_MOST = 16
"""Bodies without an update that are waited for; a loop that only measures must be saved and stopped, too."""


class LoopTakenAhead:
    """Looks how many updates each body of a pass makes."""

    def __init__(self) -> None:
        self.pass_begun()

    def pass_begun(self) -> None:
        """No body of this pass is over yet."""
        self._idle = self._idle_first = self._busy = 0

    def body_done(self, made: int) -> bool:
        """A body is over that made so many updates; return whether they come one batch late: none at first, then always some."""
        if made:
            self._idle, self._busy = 0, self._busy + 1
        else:
            self._idle, self._busy = self._idle + 1, 0
            self._idle_first = max(self._idle_first, self._idle)
        return 0 < self._idle_first <= _MOST and self._busy == 2

    @property
    def is_waiting(self) -> bool:
        """Whether the update of a batch that was given out may still come."""
        return 0 < self._idle <= _MOST

    @property
    def is_whole_pass(self) -> bool:
        """Whether updates follow on a pass without any, in which the run may have been saved."""
        return self._idle > _MOST
