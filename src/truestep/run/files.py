# SPDX-License-Identifier: Apache-2.0
"""Files that are either the old one or the new one, never half of it."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

SUFFIX = ".partial"
OLD_SECONDS = 60.0


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write that replaces `path` at the end, all at once and for good; on an error, not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=SUFFIX)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())  # mkstemp's 0600 would hide the file from colleagues
        Path(name).replace(path)
        _sync(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def is_partial(path: Path) -> bool:
    """Whether this is what a process that was killed left of a file it was writing."""
    return path.name.startswith(".") and path.name.endswith(SUFFIX)


def remove_partial(directory: Path) -> None:
    """Remove what killed processes left; another one may be writing just now, but none for so long."""
    for path in filter(is_partial, directory.iterdir()):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > OLD_SECONDS:
                path.unlink()


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
