# SPDX-License-Identifier: Apache-2.0
"""What a forked process undoes of what its parent had in place: it holds copies of all of it, and nothing there may act."""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from truestep.core.system import call_in_forked_children

Owner = TypeVar("Owner")

# Weak: what somebody dropped must be free to go.
_undoing: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()
_hooked = False


def undo_in_children(owner: Owner, undo: Callable[[Owner], object]) -> None:
    """Call `undo(owner)` in every process that is forked from this one, as long as somebody holds the owner."""
    global _hooked
    if not _hooked:
        # Once in a process: such a function can't be taken back.
        call_in_forked_children(_undo_all)
        _hooked = True
    _undoing[owner] = undo


def read_files_alone() -> None:
    """Give a forked process positions of its own in the files that it got open for reading.

    Forked processes share them: whoever seeks or reads moves what the others read next. What is not forked shares none. (Where
    Linux is not, nothing opens a file again where it stands.)
    """
    listed = Path("/proc/self/fd")
    if not listed.is_dir():
        return
    for descriptor in [int(each.name) for each in listed.iterdir()]:
        with contextlib.suppress(OSError):  # the one that listed them; a file that may not be opened again
            _reopen_if_read(descriptor)


def _reopen_if_read(descriptor: int) -> None:
    import fcntl

    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    is_read = flags & os.O_ACCMODE == os.O_RDONLY and not flags & getattr(os, "O_PATH", 0)
    if not is_read or not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    own = os.open(f"/proc/self/fd/{descriptor}", flags)
    try:
        os.lseek(own, place, os.SEEK_SET)
        os.dup2(own, descriptor, inheritable=os.get_inheritable(descriptor))
    finally:
        os.close(own)


def _undo_all() -> None:
    for owner, undo in list(_undoing.items()):
        undo(owner)
    # what the child makes of its own is undone in its own children
    _undoing.clear()
