# SPDX-License-Identifier: Apache-2.0
"""A watch over waits inside torch, which nothing can end: where no rank will ever come, the process says so and leaves."""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from traceback import walk_stack
from types import FrameType
from typing import TypeVar
from weakref import ref

from truestep.core.errors import RankError
from truestep.core.user_frames import is_library_file, is_truestep_file
from truestep.engine.processes.rank_liveness import (
    CALL_OF_ALL,
    RankAbsence,
    distributed_call_name,
    ranks_apart_message,
)
from truestep.engine.processes.world import World

T = TypeVar("T")

# `fully_shard` waits for what it gathers by itself, and so does what the user's code calls of torch.distributed: nobody looks
# around there. gloo tells it when a connection breaks, but seldom does not, and says nothing where a rank is elsewhere: then it
# would wait until the time-out. Such a wait can't be ended from outside (`abort` of a gloo group ends none).
_LOOK_SECONDS = 1.0


def end_if_stuck(world: World) -> None:
    """Have a thread look whether the thread that calls this waits where nobody comes, as long as the world is open."""
    known, waits = ref(world), threading.get_ident()

    def watch_thread() -> None:
        lost, alone = RankAbsence(), RankAbsence()
        while (here := known()) is not None and here.is_open:
            frame = sys._current_frames().get(waits)
            call = distributed_call_name(each for each, _ in walk_stack(frame)) if frame else None
            gone = here.notes.find_gone_rank() if call else None
            told = None if gone is None else _ask_or_none(here, here.notes.failure)
            # who is gone may have left since another had failed
            found = lost.confirmed_absence(told or gone, is_told=told is not None)
            found = found or alone.confirmed_absence(_find_lone_wait(here, call, frame) if call else None)
            if found is not None:
                _report_and_exit(here, found, frame)
            del here, frame
            time.sleep(_LOOK_SECONDS)

    threading.Thread(target=watch_thread, name="truestep-stuck", daemon=True).start()


def _ask_or_none(world: World, question: Callable[[], T]) -> T | None:
    try:
        return world.ask(question)
    except RankError:  # the store is gone: so are the connections that torch waits on
        return None


def _find_lone_wait(world: World, call: str, frame: FrameType | None) -> tuple[None, str] | None:
    """Return what is to be said where all other ranks have gone past this one, and wait for it in what it has not come to.

    All: a rank that has taken what another still sends is past it rightly. What a run calls itself it looks around in.
    """
    files = ((each, each.f_code.co_filename) for each, _ in walk_stack(frame))
    caller = next((each for each, file in files if is_truestep_file(file) or not is_library_file(file)), None)
    if caller is None or is_truestep_file(caller.f_code.co_filename):
        return None
    signs = _ask_or_none(world, world.notes.signs)
    if signs is None or any(
        sign.meeting <= world.num_begun for rank, sign in enumerate(signs) if rank != world.rank
    ):
        return None
    places = {rank: f"{sign.place}, {sign.where}" for rank, sign in enumerate(signs)}
    places[world.rank] = (
        f"torch.distributed ({call}), {caller.f_code.co_filename}:{caller.f_lineno} (step {world.step})"
    )
    return None, f"{ranks_apart_message(places)} {CALL_OF_ALL}"


def _report_and_exit(world: World, found: tuple[int | None, str], frame: FrameType | None) -> None:
    """Say why, as an exception would, and leave."""
    error = world.lost(*found)
    stack = "".join(traceback.format_stack(frame))
    name = f"{RankError.__module__}.{RankError.__qualname__}"
    sys.stderr.write(f"Traceback (most recent call last):\n{stack}{name}: {error}\n")
    world.exit()
