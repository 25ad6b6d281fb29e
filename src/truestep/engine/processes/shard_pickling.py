# SPDX-License-Identifier: Apache-2.0
"""Divided weights that are pickled, as `torch.save` does: a file of one rank holds its part alone, and says so to nobody.

A file of each rank is right, and one of rank 0 is not. So the first of them waits until the others have come to theirs, or past it.
"""

import copyreg
import sys
import time
from traceback import walk_stack
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from torch import Tensor

from truestep.core.errors import CheckpointError
from truestep.core.user_frames import line_of_user_code, warn_user
from truestep.engine.processes.store_requests import ask_rank_store
from truestep.engine.processes.world import World

WAITS_SECONDS = 10.0
_worlds: WeakValueDictionary[Any, World] = WeakValueDictionary()
"""The ranks that share what lies on a mesh of torch's: those of this process."""
_asked: WeakKeyDictionary[World, int] = WeakKeyDictionary()

WHOLE = (
    "Gather the whole weights on every rank: from torch.distributed.checkpoint.state_dict import StateDictOptions, "
    "get_model_state_dict; weights = get_model_state_dict(net.module, options=StateDictOptions(full_state_dict=True, "
    "cpu_offload=True)). Then write on one: if run.is_main: torch.save(weights, file). Or take them out of the run's checkpoint, "
    "which holds them whole: ts.export_weights(run.directory, 'weights.pt')."
)


def ask_others_when_pickled(mesh: Any, world: World) -> None:
    """Have each pickling of a weight that is divided over this mesh ask what the other ranks do."""
    from torch.distributed.tensor import DTensor

    _worlds[mesh] = world
    copyreg.pickle(DTensor, _reduce_tensor)


def _reduce_tensor(tensor: Any) -> Any:
    world = _worlds.get(tensor.device_mesh)
    is_copied = sys._getframe(1).f_globals.get("__name__") == "copy"  # which may ask as pickle does
    if (
        world is not None and not is_copied and _asked.get(world) != world.num_begun
    ):  # once, until the ranks meet again
        _refuse_part_alone(world, tensor)
        _asked[world] = world.num_begun
    return Tensor.__reduce_ex__(tensor, 2)  # type: ignore[no-untyped-call]


def _refuse_part_alone(world: World, tensor: Any) -> None:
    file = _torch_save_target()
    part = f"Of a weight of shape {tuple(tensor.shape)} it has the part {tuple(tensor._local_tensor.shape)}, and so of all. {WHOLE}"
    here = f"rank {world.rank} pickles divided weights at {line_of_user_code()}"
    try:
        others = _files_of_others(world, file)
    except (TimeoutError, RuntimeError, OSError):  # the store went with rank 0, which came to its end before
        return
    if others is None:
        raise CheckpointError(f"{here}, as torch.save does, and the other ranks don't. {part}")
    if file is not None and file in others:
        raise CheckpointError(
            f"{here} into {file}, and so does another rank: one is written over the other. {part}"
        )


def _files_of_others(world: World, file: str | None) -> list[str | None] | None:
    """Return which files the other ranks write to; None where they have gone on without, or are gone."""
    notes = world.notes
    until = time.monotonic() + WAITS_SECONDS
    while time.monotonic() < until:
        gone = notes.find_gone_rank()  # asked before it is read what a rank has left
        # written and read at once: rank 0, which may hold the store, ends soon where this is behind the loop
        found, signs = ask_rank_store(lambda: notes.note_pickling(world.num_begun, file), WAITS_SECONDS)
        if None not in found:
            return [each[0] for rank, each in enumerate(found) if rank != world.rank and each is not None]
        if gone or any(sign.meeting > world.num_begun for sign in signs):
            return None
        time.sleep(0.05)
    warn_user(
        f"This rank ({world.rank}) pickles divided weights, as torch.save does, and no other rank has come to do so within "
        f"{WAITS_SECONDS:g} seconds: the file holds the part of this rank alone. {WHOLE}"
    )
    return []


def _torch_save_target() -> str | None:
    """Return the file that torch.save writes to; None where it is something else that pickles."""
    for frame, _ in walk_stack(sys._getframe(1)):
        if frame.f_globals.get("__name__") == "torch.serialization" and frame.f_code.co_name == "save":
            file = frame.f_locals.get("f")
            return str(getattr(file, "name", file))
    return None
