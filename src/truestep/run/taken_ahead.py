# SPDX-License-Identifier: Apache-2.0
"""Noticing batches that are asked for before the ones before them were worked on.

A batch counts as done when the next is asked for. `zip(batches, batches)`, `list(batches)` and gradients that the loop gathers
itself ask earlier: there a run is saved behind the update only. `pairwise` and prefetching by hand never come to such a moment.
"""

_MOST = 16
"""Bodies without an update that are waited for; a loop that only measures must be saved and stopped, too."""


class LoopTakenAhead:
    """Counts the updates that each body of a pass makes."""

    def __init__(self) -> None:
        self.made = 0
        """Updates in the body under way; whoever hears of one adds it."""
        self.pass_begun()

    def pass_begun(self) -> None:
        """No body of this pass is over yet."""
        self.made = self._idle = self._idle_first = self._busy = 0

    def body_done(self) -> bool:
        """The next batch is asked for; return whether updates come one batch late: none at first, then one after each batch."""
        if self.made:
            self._idle, self._busy = 0, self._busy + 1
        else:
            self._idle, self._busy = self._idle + 1, 0
            self._idle_first = max(self._idle_first, self._idle)
        self.made = 0
        return 0 < self._idle_first <= _MOST and self._busy == 2

    @property
    def is_waiting(self) -> bool:
        """Whether the update of a batch that was given out may still come."""
        return 0 < self._idle <= _MOST

    @property
    def is_whole_pass(self) -> bool:
        """Whether updates follow on a pass without any, in which the run may have been saved."""
        return self._idle > _MOST
