# SPDX-License-Identifier: Apache-2.0
"""What takes the memory, at the moment it ran out: the largest live tensors with their holders, other processes.

A program that ran out of memory may hold hundreds of thousands of tensors: only the large ones are looked into.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from truestep.core.wording import byte_size
from truestep.explainer.crash import Crash
from truestep.explainer.evidence import parameter_owner
from truestep.explainer.values import shape_as_evidence, torch_at_crash

_KEYS = re.compile(r"""\[(['"]).*?\1\]""")
_MIN_BYTES = 2**20
_MAX_ASKED = 10_000  # small tensors whose storages are looked at
_MAX_ITEMS = 10_000  # of one container that are compared with a tensor
_MAX_SECONDS = 0.1  # for the search through the garbage collector


@dataclass(frozen=True)
class AliveAtCrash:
    """The tensors that Python sees: their bytes together, and the large ones."""

    num_bytes: int  # views of one tensor count once; of many small ones an estimate
    large: tuple[Any, ...]

    @classmethod
    def now(cls) -> "AliveAtCrash":
        """Ask each tensor for its size alone, and some of the small ones for their storage."""
        torch = torch_at_crash()
        if torch is None:
            return cls(0, ())
        from truestep.machine.memory.tensors import live_tensors

        with torch._C.DisableTorchFunctionSubclass():
            tensors = live_tensors()
            try:
                sizes = _sizes(tensors)
            except (RuntimeError, NotImplementedError):
                tensors = [tensor for tensor in tensors if _has_size(tensor)]
                sizes = _sizes(tensors)
            large = [tensor for tensor, size in zip(tensors, sizes, strict=True) if size >= _MIN_BYTES]
            small = [tensor for tensor, size in zip(tensors, sizes, strict=True) if size < _MIN_BYTES]
            asked = small[:: max(1, len(small) // _MAX_ASKED)]
            num_bytes = _storage_bytes(large) + _storage_bytes(asked) * len(small) // max(1, len(asked))
        return cls(num_bytes, tuple(large))


def _sizes(tensors: list[Any]) -> list[int]:
    """Return the bytes of what each tensor is a view of, by the cheapest questions there are."""
    return [tensor.nbytes if (base := tensor._base) is None else base.nbytes for tensor in tensors]


def _has_size(tensor: Any) -> bool:
    """Whether a tensor has a size: sparse and wrapper tensors have none."""
    try:
        _sizes([tensor])
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _storage_bytes(tensors: list[Any]) -> int:
    """Return the bytes of some tensors' storages, each counted once."""
    found: dict[int, int] = {}
    for tensor in tensors:
        with suppress(RuntimeError, NotImplementedError):
            storage = tensor.untyped_storage()
            found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def largest_tensors_at_crash(crash: Crash, alive: AliveAtCrash, num: int = 2) -> str:
    """Return the largest tensors that Python sees, on accelerators if there are any, with what holds each."""
    from truestep.machine.memory.tensors import LiveStorages, describe_storage

    storages = LiveStorages(alive.large)
    keys = [key for key in storages.largest() if storages.storages[key].nbytes() >= _MIN_BYTES]
    on_cards = [key for key in keys if storages.storages[key].device.type != "cpu"]
    shown = []
    for key in (on_cards or keys)[:num]:
        each = describe_storage(storages.tensors[key], storages.storages[key], ())
        holder = _holder_in_frames(crash, storages.tensors[key]) or _holder_anywhere(storages, key, alive)
        by = f" by {holder}" if holder else ""
        shown.append(
            f"{each.dtype} {shape_as_evidence(each.shape)}, {byte_size(each.storage_bytes)}, held{by}"
        )
    return "; ".join(shown)


def _holder_in_frames(crash: Crash, tensors: list[Any]) -> str:
    """Return the user's variable that holds one of these tensors, itself or in a container or model."""
    wanted = {id(tensor) for tensor in tensors}
    for frame, name, value in crash.users_locals():
        if id(value) in wanted:
            return f"`{name}` in {frame.function}"
        items = value.values() if type(value) is dict else value if type(value) in (list, tuple) else ()
        if any(id(item) in wanted for item in islice(items, _MAX_ITEMS)):
            return f"`{name}[...]` in {frame.function}"
    return parameter_owner(crash, tensors[0]) or ""


def _holder_anywhere(storages: Any, key: int, alive: AliveAtCrash) -> str:
    """Return what the garbage collector finds, in the time there is."""
    from truestep.machine.memory.holders import MemoryHolders

    own = [alive.large, storages.tensors, storages.storages, storages.owners, *storages.tensors.values()]
    paths = MemoryHolders(ignored=own, max_seconds=_MAX_SECONDS).paths_to(storages.tensors[key][0])
    return "" if not paths or paths[0].startswith("not found") else _KEYS.sub("[...]", paths[0])


def processes_on_card_at_crash(num: int = 3) -> str:
    """Return the other processes that hold memory of cards, most first."""
    from truestep.machine.gpus.read import read_gpus
    from truestep.machine.memory.processes import holding_processes

    found = [each.process for each in holding_processes(read_gpus()) if not each.own]
    shown = [
        f"{each.pid}{f' of {each.user}' if each.user else ''} {byte_size(each.memory_used_bytes)}"
        for each in found
        if each.memory_used_bytes
    ]
    return ", ".join(shown[:num])
