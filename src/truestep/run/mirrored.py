# SPDX-License-Identifier: Apache-2.0
"""A run and its mirror: opened before the directory is, looked at between two batches, closed behind the last save."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from truestep.checkpoints.retention import Retention
from truestep.mirror.address import lease_seconds

if TYPE_CHECKING:
    from truestep.mirror.mirror import RunMirror

MARKS_SECONDS = 5.0


class MirroredRun:
    """The mirror of a run, on rank 0; of a run without one, and on the other ranks, all of this does nothing."""

    def __init__(
        self, address: str | None, directory: Path, retention: Retention, say: Callable[[str], None]
    ) -> None:
        self.address = address
        self._directory, self._retention, self._say = directory, retention, say
        self._seconds = lease_seconds()
        self._mirror: RunMirror | None = None

    def open(self, resume: str) -> None:
        """Take the run's place in the store, and bring the directory to what is newer there."""
        if self.address is None or self._mirror is not None:
            return
        # here, so that a run without a mirror imports nothing of it
        from truestep.mirror.opening import MirrorOpening, open_mirror

        opening = MirrorOpening(self.address, self._directory, resume, self._retention, self._seconds)
        self._mirror = open_mirror(opening, self._say)

    @property
    def is_open(self) -> bool:
        """Whether there is a place in a store that this process holds."""
        return self._mirror is not None

    @property
    def pinned(self) -> Collection[int]:
        """The numbers of the saves that are being sent."""
        return () if self._mirror is None else self._mirror.pinned

    def look(self) -> None:
        """Say what there is to say; raises a RunDirectoryError once another process has gone on with the run."""
        if self._mirror is not None:
            # told first: what is said may explain why the check raises
            self._tell(self._mirror)
            self._mirror.check()

    def attempt_noted(self) -> None:
        """A start was counted: wait a moment until the store knows, so that it counts if this process dies."""
        if self._mirror is not None:
            # a start that dies before the store knows would be tried for ever on another machine
            self._mirror.flush_marks(MARKS_SECONDS)

    def close(self, until: float | None) -> None:
        """Send what is left, until a moment of `time.monotonic` at most, and give the place back."""
        mirror, self._mirror = self._mirror, None
        if mirror is not None:
            mirror.close(until)
            self._tell(mirror)

    def _tell(self, mirror: "RunMirror") -> None:
        while mirror.said:
            self._say(mirror.said.popleft())
