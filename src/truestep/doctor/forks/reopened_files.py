# SPDX-License-Identifier: Apache-2.0
"""The open files of a forked child, opened anew: a position, a lock or a pipe that it shares would move under its parent."""

import contextlib
import fcntl
import os
import stat

from truestep.core.os_specific import open_descriptors

MOST_BYTES = 64 << 20  # of a file open for writing, whose contents a child gets as a copy
_MEMORY_DEVICES = frozenset({3, 5, 7, 8, 9})  # null, zero, full, random, urandom: they are nobody's


def reopen_descriptors(keep: int) -> None:
    """Give this process descriptors of its own in the place of those that it shares, but one.

    Files and folders that are read are opened again where they stand; a file that is written becomes a copy in memory, a large one
    can be read only; terminals, pipes, sockets and all that waits lead nowhere.

    Raises:
        OSError: there is no room for one more descriptor.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in open_descriptors():
        if descriptor in (keep, nowhere):
            continue
        try:
            found, flags = os.fstat(descriptor), fcntl.fcntl(descriptor, fcntl.F_GETFL)
        except OSError:
            continue  # the one that listed them is closed by now
        try:
            anew = _private_descriptor(descriptor, found, flags)
        except OSError:
            anew = None
        os.dup2(nowhere if anew is None else anew, descriptor)
        if anew is not None:
            os.close(anew)
    os.close(nowhere)


def is_memory_device(found: os.stat_result) -> bool:
    """Tell `/dev/null`, `/dev/zero` and random numbers, which are nobody's, from a terminal or another device."""
    is_device = stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == 1
    return is_device and os.minor(found.st_rdev) in _MEMORY_DEVICES


def _private_descriptor(descriptor: int, found: os.stat_result, flags: int) -> int | None:
    """Return a descriptor of the same contents that shares nothing, None for what has to lead nowhere."""
    again, mode = f"/proc/self/fd/{descriptor}", flags & os.O_ACCMODE
    if flags & getattr(os, "O_PATH", 0):
        return os.open(again, flags & (os.O_PATH | os.O_DIRECTORY))
    if is_memory_device(found):
        return os.open(again, mode)
    if stat.S_ISDIR(found.st_mode):
        return _move_descriptor(os.open(again, os.O_RDONLY | os.O_DIRECTORY), descriptor)
    if not stat.S_ISREG(found.st_mode):
        return None
    if mode == os.O_RDONLY or found.st_size > MOST_BYTES:
        return _move_descriptor(os.open(again, os.O_RDONLY), descriptor)
    return _move_descriptor(_copy_in_memory(again, flags), descriptor)


def _move_descriptor(anew: int, descriptor: int) -> int:
    """Put a new descriptor where the old one stands."""
    os.lseek(anew, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
    return anew


def _copy_in_memory(path: str, flags: int) -> int:
    """Return a file in memory with a file's contents, as far as they may be read."""
    copy = os.memfd_create("truestep-child")
    with contextlib.suppress(OSError):
        source = os.open(path, os.O_RDONLY)
        while chunk := os.read(source, 1 << 20):
            os.write(copy, chunk)
        os.close(source)
    fcntl.fcntl(copy, fcntl.F_SETFL, flags & os.O_APPEND)
    return copy
