# SPDX-License-Identifier: Apache-2.0
"""A run's mirror: taken when the run is made, fed by a thread while it trains, given back at its end."""

import atexit
import os
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from truestep.checkpoints.checkpoint import Checkpoint
from truestep.checkpoints.checkpoint_removal import undamaged_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.manifest import Manifest
from truestep.core.errors import CheckpointError, RunDirectoryError
from truestep.core.text_formatting import duration_text
from truestep.mirror.checkpoint_record import commit_order
from truestep.mirror.lease import HeldLease
from truestep.mirror.local_mirror_state import CHECKPOINTS, checkpoint_mark_names
from truestep.mirror.push import CheckpointPush, LeaseLostError
from truestep.mirror.store_requests import MirrorObjectStore, StoreError

LOOK_SECONDS = 0.5
RETRY_SECONDS = 8.0
"""The longest pause before a store that is away is tried again."""
SAID_AFTER_SECONDS = 60.0
PATIENCE_SECONDS = 60.0
"""How long the end of a run waits for a store that is away."""


class RunMirror:
    """Holds the lease of a run's place in the store, and sends its checkpoints there. What it has to say waits in `said`."""

    def __init__(
        self, objects: MirrorObjectStore, held: HeldLease, push: CheckpointPush, directory: Path
    ) -> None:
        self.pinned: set[int] = set()
        """The numbers of the saves that are being sent, and stay on the disk as long."""
        self.said: deque[str] = deque()
        self._objects, self._held, self._push = objects, held, push
        self._checkpoints, self._process = directory / CHECKPOINTS, os.getpid()
        self._files = CheckpointFiles()
        self._known: dict[str, Manifest] = {}
        self._seen: tuple[str, ...] = ()
        self._unsendable: set[str] = set()
        self._todo: list[Checkpoint] = []
        self._away_since: float | None = None
        self._said_away = 0.0
        self._pause = LOOK_SECONDS
        self._is_closed = False
        self._ending = threading.Event()
        self._stops_at = float("inf")
        self._thread = threading.Thread(target=self._send_until_ended, name="truestep-push", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # of a process that closes nothing the place is given back all the same

    @property
    def address(self) -> str:
        """Where the store is."""
        return self._objects.address

    def check(self) -> None:
        """Raise a RunDirectoryError once another process has gone on with the run."""
        if self._held.is_fenced:
            raise RunDirectoryError(
                f"The run goes on elsewhere: {self._held.follower} took over the mirror {self.address}, as this process was not "
                "heard of for one lease. What was sent before that is safe there, nothing of this process counts from then on. "
                "Nothing is to be done here; a start in this directory fetches what is newer."
            )

    # ------------------------------------------------------------------ the thread

    def _send_until_ended(self) -> None:
        while not self._held.is_fenced:
            ending = self._ending.is_set()  # asked first: what was saved before is seen below
            try:
                if not (idle := self._send_next_and_check_idle()):
                    self._note_store_reachable()
            except LeaseLostError:
                return
            except StoreError as error:
                self._note_store_unreachable(error)
                if self._has_store_been_away_too_long():
                    return
                self._pause = min(2 * self._pause, RETRY_SECONDS)  # each try reads and hashes pieces
                self._ending.wait(self._pause) if not ending else time.sleep(LOOK_SECONDS / 5)
                continue
            except Exception as error:  # noqa: BLE001 -- a thread's exception would be nobody's
                idle = self._note_send_failure(error)
            if idle and ending:
                return
            if idle:
                self._ending.wait(LOOK_SECONDS)

    def _send_next_and_check_idle(self) -> bool:
        """Do one thing; return whether there was nothing to do."""
        names = tuple(sorted(self._files.names(self._checkpoints)))
        if names != self._seen:
            self._todo = []
            self._todo, self._seen = self._push.wanted(self._sendable_checkpoints()), names
        if (marks := checkpoint_mark_names(self._checkpoints)) != self._held.lease.marks:
            self._held.write(marks=marks)
        if not self._todo:
            return True
        checkpoint = self._todo[0]
        self.pinned.add(checkpoint.summary.sequence)
        try:
            self._push.send(Checkpoint.open(checkpoint.path))
            del self._todo[0]
            self._push.prune()
        finally:
            self.pinned.discard(checkpoint.summary.sequence)
        return False

    def _sendable_checkpoints(self) -> list[Checkpoint]:
        return undamaged_checkpoints(self._files, self._checkpoints, self._unsendable, self._known)

    def _note_store_unreachable(self, error: Exception) -> None:
        now = time.monotonic()
        self._away_since = self._away_since or now
        behind = now - self._away_since
        if behind >= SAID_AFTER_SECONDS and now - self._said_away >= 10 * SAID_AFTER_SECONDS:
            self._said_away = now
            self.said.append(
                f"the store is {duration_text(behind)} behind: {self.address} can't be reached ({error}). Training goes on, and "
                "the newest checkpoint is sent when it can be."
            )

    def _note_store_reachable(self) -> None:
        if self._said_away:
            self.said.append(f"the store {self.address} is reached again")
        self._away_since, self._said_away, self._pause = None, 0.0, LOOK_SECONDS

    def _note_send_failure(self, error: Exception) -> bool:
        """Say once what can't be sent, and look for what else is there; return whether that is known already."""
        self._seen = ()
        if not self._todo and isinstance(error, FileNotFoundError):
            return True  # pruned while it was looked at, or all is gone
        if self._todo and not self._todo[0].path.exists():  # pruned before it was pinned
            return False
        name = self._todo[0].name if self._todo else "what is to be sent"
        is_known = name in self._unsendable
        if not is_known:
            kind = "" if isinstance(error, CheckpointError) else f"{type(error).__name__}: "
            self.said.append(f"{name} is not sent to {self.address}: {kind}{error}")
        self._unsendable.add(name)
        return is_known

    def _has_store_been_away_too_long(self) -> bool:
        """Whether the run has ended, and the store has been away for too long since."""
        if not self._ending.is_set():
            return False
        now = time.monotonic()
        return now >= self._stops_at or now - (self._away_since or now) >= PATIENCE_SECONDS

    # ------------------------------------------------------------------ the end

    def flush_marks(self, seconds: float) -> None:
        """Wait until the store knows of the marks beside the checkpoints, so long at most: an attempt that dies is to count."""
        end = time.monotonic() + seconds
        while checkpoint_mark_names(self._checkpoints) != self._held.lease.marks and time.monotonic() < end:
            if self._held.is_fenced or not self._thread.is_alive() or self._away_since:
                return
            time.sleep(0.01)

    def close(self, until: float | None = None) -> None:
        """Send what is left and give the lease back.

        With `until`, a moment of `time.monotonic`, no request begins after it and those under way are cut off; without it a store
        that is away is waited for PATIENCE_SECONDS.
        """
        if self._is_closed or self._process != os.getpid():
            return
        self._is_closed = True
        atexit.unregister(self.close)
        if until is not None:
            self._stops_at = until
            self._objects.set_deadline(until)
        self._ending.set()
        while self._thread.is_alive() and time.monotonic() <= self._stops_at + 2.0:  # a listing may hang
            self._thread.join(0.2)
        with suppress(OSError):  # somebody has deleted the directory, say
            self._report_unsent_checkpoints()
        if not self._held.release_lease():
            self.said.append(
                f"the lease of {self.address} could not be given back: the next start waits {self._held.lease.seconds:.0f} s for it"
            )
        self._objects.close()

    def _report_unsent_checkpoints(self) -> None:
        # asked anew: what was saved last may never have been looked at
        if not self._held.is_fenced and (left := self._push.wanted(self._sendable_checkpoints())):
            newest = max(self._push.commits, key=commit_order, default=None)
            stands = f"{newest.rpartition('/')[2]} is the newest there" if newest else "nothing is there yet"
            self.said.append(f"{left[0].name} did not reach {self.address} in time: {stands}")
