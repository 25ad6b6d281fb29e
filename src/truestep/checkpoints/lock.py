# SPDX-License-Identifier: Apache-2.0
"""One process writes to a run's checkpoints; its lock ends with it, however it ends."""

import os
import re
import socket
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from truestep.checkpoints.checkpoint_names import LOCK
from truestep.checkpoints.file_operations import CheckpointFiles, read_bytes, write_all
from truestep.core.atomic_files import read_regular_file
from truestep.core.command_line_redaction import hide_command_secrets
from truestep.core.errors import RunDirectoryError
from truestep.core.forks import undo_in_children
from truestep.core.os_specific import held_locks


class RunLock:
    """The lock of a directory, held until `release` or the end of this process.

    The kernel ties it to the open file, which a forked process shares. So a child closes its copy and never unlocks: the lock
    stays with the process that took it, and is gone when that one ends. Raises RunDirectoryError with the holder's name where
    another process, or another store of this one, holds it.
    """

    def __init__(self, directory: Path, files: CheckpointFiles) -> None:
        self._files = files
        self._directory = directory
        self._path = directory / LOCK
        self._process = os.getpid()
        self._descriptor: int | None = None
        self._is_signed = False
        self._open_and_lock()
        undo_in_children(self, RunLock.release)  # or data workers would hold it for a parent that was killed

    def _open_and_lock(self) -> None:
        self._descriptor = self._files.open_lock(self._path)
        try:
            if not stat.S_ISREG(self._files.status(self._descriptor).st_mode):
                raise RunDirectoryError(f"{self._path} is no regular file, so it can't be locked. Remove it.")
            self._files.lock(self._descriptor)
        except BlockingIOError:
            holder = self._describe_lock_holder(self._descriptor)
            self.release()
            advice = "Two runs in one directory would delete each other's checkpoints: end that process"
            if holder.startswith(f"process {self._process} on {socket.gethostname()} "):
                advice = "That is this process itself: close what it made there (run.close(), store.close()), or go on with it"
            raise RunDirectoryError(
                f"{self._directory} is in use by {holder}. {advice}, or choose another directory."
            ) from None
        # KeyboardInterrupt too: a descriptor that nobody knows of would hold the lock as long as the process lives
        except BaseException:
            self.release()
            raise
        with suppress(OSError):  # the name is for people; on a full disk the lock holds without it
            self._write_holder_to_lock_file(self._descriptor)

    def _describe_lock_holder(self, descriptor: int) -> str:
        try:
            name = read_bytes(self._files, descriptor, 4096).decode("utf-8", "replace").strip()
        except OSError:
            name = ""
        return "".join(letter for letter in name if letter.isprintable()) or "another process"

    def _write_holder_to_lock_file(self, descriptor: int) -> None:
        self._files.truncate(descriptor)
        self._is_signed = True
        command = " ".join(hide_command_secrets(sys.argv))[:200]
        text = f"process {os.getpid()} on {socket.gethostname()} ({command})\n"
        write_all(self._files, descriptor, memoryview(text.encode("utf-8", "replace")))

    @property
    def held(self) -> bool:
        """Whether this process holds the lock; a process forked from the holder does not."""
        return self._descriptor is not None and os.getpid() == self._process

    def check(self) -> None:
        """Raise a RunDirectoryError unless this process still holds the lock that others would ask for.

        Whoever removes the file lets a second process lock a new one. It is made again where it is missing.
        """
        assert self._descriptor is not None
        try:
            there = self._files.status(self._path)
        except FileNotFoundError:
            there = None
        mine = self._files.status(self._descriptor)
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            self.release()
            self._open_and_lock()

    def release(self) -> None:
        """Let go of the lock; the file stays, empty, since two processes could hold one that is removed and made anew."""
        if self._descriptor is not None:
            signed = self._is_signed and self.held
            descriptor, self._descriptor, self._is_signed = self._descriptor, None, False
            if signed:
                with suppress(OSError):
                    self._files.truncate(descriptor)
            with suppress(OSError):  # closed, and the lock gone, even where an error is reported
                self._files.close(descriptor)

    def __del__(self, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        try:
            self.release()
        except Exception:  # `os` may be gone by then, and the lock goes with the process
            if not is_over():
                raise


_SIGNATURE = re.compile(r"process (\d+) on (\S+) ")


def is_lock_held(folder: Path) -> bool | None:
    """Return whether a process holds the lock of a folder of checkpoints; None where this machine can't tell.

    To try the lock would be simpler, and a run that starts at this moment would be refused.
    """
    path = folder / LOCK
    try:
        signed, status = read_regular_file(path).decode("utf-8", "replace"), path.stat()
    except OSError:
        return False
    match = _SIGNATURE.match(signed)
    signer, host = (int(match[1]), match[2]) if match else (0, socket.gethostname())
    held = held_locks()
    for lock in held or ():
        # some file systems give `stat` another device than the kernel's table has
        if lock.inode == status.st_ino and (lock.device == status.st_dev or lock.process == signer):
            return True
    if host != socket.gethostname():
        return None
    return held is None and match is not None and _is_lock_holder_alive(signer, status.st_mtime)


def _is_lock_holder_alive(process: int, signed_at: float) -> bool:
    """Whether the process that signed a lock still runs; one that began later has its number by chance."""
    import psutil

    try:
        # A second of grace: psutil adds clock ticks to the time of boot, which Linux gives in whole seconds.
        return bool(psutil.Process(process).create_time() <= signed_at + 1)
    except (psutil.Error, ValueError):
        return False
