# SPDX-License-Identifier: Apache-2.0
"""Where a run stood when it was saved: it tells, at its end, whether there is anything to save."""

from typing import Any

from truestep.run.state import RunState
from truestep.run.user_state import run_state_at_a_glance, run_state_digest


class SavedPlace:
    """The place of the newest save."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._place: tuple[Any, ...] | None = None
        self._digest: str | None = None  # of what is tracked, where the run may have ended

    def note(self, place: tuple[Any, ...]) -> None:
        """The run was saved at a place."""
        self._place, self._digest = place, None

    def note_tracked(self) -> None:
        """What is tracked is as it was saved, or restored: all of it is read."""
        self._digest = run_state_digest(self._run.tracked.state())

    @property
    def is_unsaved(self) -> bool:
        """Whether the run has moved since it was saved."""
        return self._place != self.here()

    @property
    def is_tracked_unsaved(self) -> bool:
        """Whether what the run tracks has changed since it was saved; to be asked where it ends, since all of it is read."""
        return self._digest != run_state_digest(self._run.tracked.state())

    def here(self) -> tuple[Any, ...]:
        """Return what tells whether the run has moved; updates and `run.state` move without batches, too."""
        # cheap, since it is asked at each save: of `run.state` a glance, not its bytes
        cursor = self._run.cursor
        return (
            cursor.finished,
            cursor.epoch,
            cursor.done,
            *(stream.passes for stream in cursor.streams.values()),
            self._run.attempts,
            run_state_at_a_glance(self._run.user),
        )
