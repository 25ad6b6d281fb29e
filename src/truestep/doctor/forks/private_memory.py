# SPDX-License-Identifier: Apache-2.0
"""Memory that a forked child shares with other processes, made its own: same contents, same addresses."""

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r"(\w+)-(\w+) (r|-)(w|-)(x|-)s (\w+) (\w+):(\w+) (\d+) *(.*)")
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE, _FIXED, _ANONYMOUS = 0x02, 0x10, 0x20
MOST_BYTES = 1 << 30  # of memory without a file that can be opened, which is copied


@dataclass(frozen=True)
class SharedMapping:
    """A stretch of addresses that writes into memory of others, as `/proc/self/maps` tells of it."""

    start: int
    size: int
    protection: int
    offset: int  # in the file
    device: tuple[int, int]
    inode: int
    path: str

    @classmethod
    def from_maps_line(cls, line: str) -> "SharedMapping | None":
        """Return what a line tells, None of memory that is private."""
        found = _LINE.match(line)
        if found is None:
            return None
        start, end, readable, writable, executable, offset, major, minor, inode, path = found.groups()
        flags = (readable == "r", _READ), (writable == "w", _WRITE), (executable == "x", _EXECUTE)
        length, device = int(end, 16) - int(start, 16), (int(major, 16), int(minor, 16))
        bits = sum(bit for is_set, bit in flags if is_set)
        return cls(int(start, 16), length, bits, int(offset, 16), device, int(inode), path)


def shared_mappings() -> list[SharedMapping]:
    """Return all memory of this process that it shares."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as file:
        return [each for line in file if (each := SharedMapping.from_maps_line(line)) is not None]


def make_memory_private() -> None:
    """Put private memory with the same contents in the place of all that is shared.

    Raises:
        OSError: some can't be, as that of a device, or it is too much to copy.
    """
    library = _load_libc()
    copied = 0
    for each in shared_mappings():
        if each.path.startswith("/dev/") and not each.path.startswith(("/dev/shm/", "/dev/zero")):
            raise OSError(f"memory of {each.path} is shared with a device")
        descriptor = _open_mapped_file(each)
        if descriptor is not None:
            _map_private_memory(library, each, each.protection, descriptor)
            os.close(descriptor)
            continue
        copied += each.size
        if copied > MOST_BYTES:
            raise OSError(f"more than {MOST_BYTES >> 30} GB of memory are shared with other processes")
        _copy_mapping(library, each)


def _load_libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    integer, size, place = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
    library.mmap.restype = place
    library.mmap.argtypes = (place, size, integer, integer, integer, ctypes.c_long)
    library.mprotect.argtypes = (place, size, integer)
    return library


def _open_mapped_file(mapping: SharedMapping) -> int | None:
    """Open the file behind a mapping, where that lies on a disk and still has its name.

    A private mapping of a file shows what others write to it later. Nobody writes to a data set on a disk meanwhile; but the
    memory of workers changes, and is copied.
    """
    if not mapping.inode or mapping.path.startswith(("/dev/", "/memfd:", "/SYSV")):
        return None
    try:
        descriptor = os.open(mapping.path, os.O_RDONLY)
    except OSError:
        return None
    found = os.fstat(descriptor)
    if (os.major(found.st_dev), os.minor(found.st_dev), found.st_ino) == (*mapping.device, mapping.inode):
        return descriptor
    os.close(descriptor)
    return None


def _map_private_memory(
    library: ctypes.CDLL, mapping: SharedMapping, protection: int, descriptor: int = -1
) -> None:
    """Map private memory over a shared mapping: of a file, or empty."""
    kind = _PRIVATE | _FIXED | (_ANONYMOUS if descriptor < 0 else 0)
    offset = 0 if descriptor < 0 else mapping.offset
    if library.mmap(mapping.start, mapping.size, protection, kind, descriptor, offset) != mapping.start:
        raise OSError(ctypes.get_errno(), f"memory of {mapping.path or 'another process'} stays shared")


def _copy_mapping(library: ctypes.CDLL, mapping: SharedMapping) -> None:
    """Exchange a mapping for its contents; what nobody here can read is exchanged for nothing."""
    is_read = bool(mapping.protection & _READ)
    contents = ctypes.string_at(mapping.start, mapping.size) if is_read else b""
    _map_private_memory(library, mapping, _READ | _WRITE)
    ctypes.memmove(mapping.start, contents, len(contents))
    if library.mprotect(mapping.start, mapping.size, mapping.protection):
        raise OSError(ctypes.get_errno(), "memory can't be protected as it was")
