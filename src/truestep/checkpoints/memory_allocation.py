# SPDX-License-Identifier: Apache-2.0
"""Memory that nobody has written to yet, made in one go before it is filled, and memory given back. Imports no torch.

The system makes it page by page, where each is first written to: half a second for 1 GB on a virtual machine, a fourth of which
are the interruptions (docs/log.md).
"""

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

LEAST_BYTES = 1 << 18  # for less the calls cost as much as they save
_MADV_POPULATE_WRITE = 23  # since Linux 5.14; `mmap` does not name it
_MADV_DONTNEED = 4


def prefault_pages(memory: memoryview) -> bool:
    """Have the system make the pages of some memory, which keeps its content; return whether it did.

    Linux alone can. Memory that has its middle page already was in use, where this would only take time.
    """
    if len(memory) < LEAST_BYTES or (system := _libc_with_madvise()) is None:
        return False
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    end, middle = begin + len(memory), begin + len(memory) // 2
    is_there = ctypes.c_ubyte(1)
    system.mincore(_page_start(middle), mmap.PAGESIZE, ctypes.byref(is_there))
    if is_there.value & 1:
        return False
    done: bool = system.madvise(_page_start(begin), end - _page_start(begin), _MADV_POPULATE_WRITE) == 0
    return done


def release_pages(memory: memoryview) -> None:
    """Have the system take the whole pages of some memory, which nobody reads any more: its content is gone. Linux alone does."""
    if len(memory) < LEAST_BYTES or (system := _libc_with_madvise()) is None:
        return
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    first, end = _page_start(begin + mmap.PAGESIZE - 1), _page_start(begin + len(memory))
    system.madvise(first, end - first, _MADV_DONTNEED)


def _page_start(address: int) -> int:
    return address - address % mmap.PAGESIZE


@cache
def _libc_with_madvise() -> Any:
    """Return the C library, None where it has no such calls."""
    system = ctypes.CDLL(None) if sys.platform == "linux" else None
    if system is None or not (hasattr(system, "madvise") and hasattr(system, "mincore")):
        return None
    system.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    system.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return system
