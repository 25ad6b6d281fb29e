# SPDX-License-Identifier: Apache-2.0
"""While torch compiles on one rank, which may take minutes, the others wait for it as they do for one that saves."""

from contextlib import ExitStack
from typing import Any
from weakref import WeakSet, ref

from truestep.engine.processes.world import World

_told: WeakSet[World] = WeakSet()


def announce_compiles(world: World) -> None:
    """Tell the other ranks from now on whenever torch compiles in this process."""
    if world in _told:
        return
    from torch._dynamo.callback import on_compile_end, on_compile_start

    _told.add(world)
    here, stack = ref(world), ExitStack()

    def note_compile_start(_: Any) -> None:
        if (known := here()) is not None and known.is_open:
            stack.enter_context(known.busy("compiling"))

    def note_compile_end(_: Any) -> None:
        stack.close()

    on_compile_start(note_compile_start)
    on_compile_end(note_compile_end)
