# SPDX-License-Identifier: Apache-2.0
"""One process writes to a run's checkpoints; its lock ends with it, however it ends."""

import os
import socket
import sys
import weakref
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
            holder = read_bytes(files, self._descriptor, 4096).decode("utf-8", "replace").strip()
            self.release()
            raise RunDirectoryError(
                f"{directory} is in use by {holder or 'another process'}. Two runs in one directory would "
                f"delete each "
                "other's checkpoints: end that process, or choose another directory."
            ) from None
        except OSError:
            self.release()
            raise
        self._sign()
        _released_in_children()
        _held.add(self)

    def _sign(self) -> None:
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, 0)
        command = " ".join(sys.argv)[:200]
        text = f"process {os.getpid()} on {socket.gethostname()} ({command})\n"
        write_all(self._files, self._descriptor, memoryview(text.encode("utf-8", "replace")))

    @property
    def held(self) -> bool:
        """Whether this process holds the lock; a process forked from the holder does not."""
        return self._descriptor is not None

    def release(self) -> None:
        """Let go of the lock."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
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
