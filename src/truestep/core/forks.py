# SPDX-License-Identifier: Apache-2.0
"""What a forked process undoes of what its parent had in place: it holds copies of all of it, and nothing there may act."""

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from truestep.core.os_specific import call_in_forked_children

Owner = TypeVar("Owner")

# Weak: what somebody dropped must be free to go.
_undoing: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()
_hooked = False


def undo_in_children(owner: Owner, undo: Callable[[Owner], object]) -> None:
    """Call `undo(owner)` in every process that is forked from this one, as long as somebody holds the owner."""
    global _hooked
    if not _hooked:
        # Once in a process: such a function can't be taken back.
        call_in_forked_children(_run_undo_callbacks)
        _hooked = True
    _undoing[owner] = undo


def _run_undo_callbacks() -> None:
    for owner, undo in list(_undoing.items()):
        undo(owner)
    # what the child makes of its own is undone in its own children
    _undoing.clear()
