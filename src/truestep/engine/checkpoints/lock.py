# SPDX-License-Identifier: Apache-2.0
"""One process writes to a run's checkpoints; its lock ends with it, however it ends."""

import os
import socket
import sys
import weakref
from contextlib import suppress
from pathlib import Path

from truestep.engine.checkpoints.files import Files, read_bytes, write_all
from truestep.engine.checkpoints.names import LOCK
from truestep.errors import RunDirectoryError

_held: "weakref.WeakSet[RunLock]" = weakref.WeakSet()


class RunLock:
    """The lock of a directory, held until `release` or the end of this process.

    Raises RunDirectoryError with the holder's name where another process, or another store of this one,
    holds it.
    """

    def __init__(self, directory: Path, files: Files) -> None:
        self._files = files
        self._path = directory / LOCK
        self._descriptor: int | None = files.open_lock(self._path)
        try:
            files.lock(self._descriptor)
        except BlockingIOError:
            holder = self._holder(self._descriptor)
            self.release()
            raise RunDirectoryError(
                f"{directory} is in use by {holder}. Two runs in one directory would delete each other's "
                "checkpoints: end that process, or choose another directory."
            ) from None
        except OSError:
            self.release()
            raise
        with suppress(OSError):  # the name is for people; on a full disk the lock holds without it
            self._sign(self._descriptor)
        _released_in_children()
        _held.add(self)

    def _holder(self, descriptor: int) -> str:
        try:
            name = read_bytes(self._files, descriptor, 4096).decode("utf-8", "replace").strip()
        except OSError:
            name = ""
        return name or "another process"

    def _sign(self, descriptor: int) -> None:
        self._files.truncate(descriptor)
        command = " ".join(sys.argv)[:200]
        text = f"process {os.getpid()} on {socket.gethostname()} ({command})\n"
        write_all(self._files, descriptor, memoryview(text.encode("utf-8", "replace")))

    @property
    def held(self) -> bool:
        """Whether this process holds the lock; a process forked from the holder does not."""
        return self._descriptor is not None

    def release(self) -> None:
        """Let go of the lock."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):  # closed, and the lock gone, even where an error is reported
                self._files.close(descriptor)


_hooked = False


def _released_in_children() -> None:
    """Make forked processes (data loading workers) close the lock, or it outlives a killed parent in them."""
    global _hooked
    if not _hooked:
        os.register_at_fork(after_in_child=_release_all)
        _hooked = True


def _release_all() -> None:
    for lock in list(_held):
        lock.release()
