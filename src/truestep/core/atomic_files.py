# SPDX-License-Identifier: Apache-2.0
"""Files of a run: regular files that no link leads away from, each either the old one or the new one, never half of it.

A run's files are opened by name again and again, for days, by processes that truncate and append. So none of them follows a
link (it could lead to a file that is somebody else's), and none waits at a pipe or a terminal. The directory itself may be a link.
"""

import errno
import os
import os.path
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from truestep.core import os_specific
from truestep.core.errors import OptionError

SUFFIX = ".partial"
OLD_SECONDS = 60.0  # no file that is written here takes as long


def open_regular_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file and return its descriptor; raises an OSError that says so where it is a link, or no regular file."""
    try:
        descriptor = os_specific.open_no_follow(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(
                errno.ELOOP, "it is a symbolic link, which could lead anywhere", str(path)
            ) from None
        if error.errno == errno.ENXIO:
            raise _not_regular_file_error(path) from None
        raise
    try:
        if stat.S_ISDIR(mode := os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise _not_regular_file_error(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _not_regular_file_error(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is a pipe, a socket or a device, and no regular file", str(path))


def read_regular_file(path: Path) -> bytes:
    """Return what is in a regular file; raises an OSError as `open_regular_file` does."""
    with os.fdopen(open_regular_file(path), "rb") as file:
        return file.read()


def stamp_of_file(status: os.stat_result) -> tuple[int, ...]:
    """Return what tells this state of a file from any other, as far as the system says it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@contextmanager
def replacing_file(path: Path, mode: int | None = None, *, is_durable: bool = True) -> Iterator[BinaryIO]:
    """Give a file to write that replaces `path` at the end, all at once and for good; on an error, not at all.

    `mode` is its permissions; without it, those of a new file. One that is not durable, because it can be made again, is not
    waited for: a power failure may leave it empty.
    """
    # Not by tempfile.mkstemp: its files are 0600, which hides them from colleagues, and to learn the umask one has to change it for
    # the whole process, in which other threads make files meanwhile.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    handle = os_specific.open_no_follow(partial, flags, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if is_durable:
                file.flush()
                # before the rename, which could else reach the disk without the contents
                os_specific.sync_file(file.fileno())
        if mode is not None:
            partial.chmod(mode)
        partial.replace(path)
        if is_durable:
            os_specific.sync_folder(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def explain_unwritable(what: str, path: Path) -> Iterator[None]:
    """Within this a file of the user's choice is written: where it can't be, that is said in one line.

    A full disk is no matter of the place, and stays an OSError.

    Raises:
        OptionError: the folder is missing or forbidden, a folder has the name.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise OptionError(f"{what} can't be written to {path}: {_why_unwritable(path, error)}") from error


def _why_unwritable(path: Path, error: OSError) -> str:
    folder = path.absolute().parent
    if path.is_dir():
        return f"it is a folder. Name a file in it: {path / 'NAME'}."
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "does not exist"
        return f"{folder} {what}. Make it first (mkdir -p), or name a file in a folder that is there."
    return f"{error.strerror or error}. Name a file in a folder that you may write to."


def is_unfinished_file(path: Path) -> bool:
    """Whether this is what a process that was killed left of a file it was writing."""
    return path.name.startswith(".") and path.name.endswith(SUFFIX)


def remove_unfinished_files(directory: Path) -> None:
    """Remove what killed processes left; another one may be writing just now, but none for so long."""
    for path in filter(is_unfinished_file, directory.iterdir()):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > OLD_SECONDS:
                path.unlink()


# Whether a file, a folder, or anything is there that this user may see.
is_visible_file, is_visible_folder, is_visible_path = os.path.isfile, os.path.isdir, os.path.exists


def visible_paths_in(folder: Path, pattern: str) -> list[Path]:
    """Return what matches in a folder, sorted; nothing where this user may not look."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
