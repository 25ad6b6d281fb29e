# SPDX-License-Identifier: Apache-2.0
"""A watch over waits inside torch, which nothing can end: where a rank is gone, the process says so and leaves."""

import os
import sys
import threading
import time
import traceback
from types import FrameType
from weakref import ref

from truestep.core.errors import RankError
from truestep.engine.processes.lookout import RankGone
from truestep.engine.processes.world import World

# `fully_shard` waits for what it gathers by itself, so nobody looks around there. gloo tells it when a connection breaks, but
# seldom does not: then it would wait until the time-out. Such a wait can't be ended from outside (`abort` of a gloo group ends
# none).
_LOOK_SECONDS = 1.0
_INSIDE = f"torch{os.sep}distributed{os.sep}fsdp"


def end_if_stuck(world: World) -> None:
    """Have a thread look whether the thread that calls this waits for a rank that is gone, as long as the world is open."""
    known, waits = ref(world), threading.get_ident()

    def watch() -> None:
        lost = RankGone()
        while (here := known()) is not None and here.is_open:
            frame = sys._current_frames().get(waits)
            inside = (
                any(_INSIDE in each.f_code.co_filename for each, _ in traceback.walk_stack(frame))
                if frame
                else False
            )
            gone = here.notes.gone() if inside else None
            told = None if gone is None else _told(here)
            # who is gone may have left since another had failed
            if (cause := lost.for_long(told or gone, is_told=told is not None)) is not None:
                _end(here, cause, frame)
            del here, frame
            time.sleep(_LOOK_SECONDS)

    threading.Thread(target=watch, name="truestep-stuck", daemon=True).start()


def _told(world: World) -> tuple[int | None, str] | None:
    try:
        return world.ask(world.notes.failure)
    except RankError:  # the store is gone: so are the connections that torch waits on
        return None


def _end(world: World, cause: tuple[int | None, str], frame: FrameType | None) -> None:
    """Say why, as an exception would, and leave."""
    error = world.lost(*cause)
    stack = "".join(traceback.format_stack(frame))
    name = f"{RankError.__module__}.{RankError.__qualname__}"
    sys.stderr.write(f"Traceback (most recent call last):\n{stack}{name}: {error}\n")
    world.exit()
