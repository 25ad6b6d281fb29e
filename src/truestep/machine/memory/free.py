# SPDX-License-Identifier: Apache-2.0
"""Free what can be freed, and say what still holds the rest."""

import ctypes
import gc
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from truestep.core.result_display import RenderableType, Result
from truestep.machine.gpus.read import read_gpus
from truestep.machine.memory.amounts import MemoryAmounts, accelerator_in_use, measure_memory
from truestep.machine.memory.object_holders import MAX_PATHS, ReferrerPathFinder
from truestep.machine.memory.processes import HoldingProcess, ProcessEndResult, end_process, holding_processes
from truestep.machine.memory.tensors import LiveStorages, LiveTensor, describe_storage

_MAX_TENSORS_ASKED = 3
_LAST_ERROR = ("last_exc", "last_value", "last_traceback", "last_type")


@dataclass(frozen=True, kw_only=True)
class MemoryReport(Result):
    """Memory before and after freeing, and what holds what is left."""

    before: MemoryAmounts
    after: MemoryAmounts
    collected_objects: int
    tensors: tuple[LiveTensor, ...]  # the largest storages that Python sees
    num_storages: int  # all that Python sees
    unseen_bytes: int | None  # on devices, allocated and not in Python's sight: kept by autograd graphs
    last_error_kept: bool  # the traceback of the last error keeps its functions' variables
    processes: tuple[HoldingProcess, ...]
    endings: tuple[ProcessEndResult, ...] = ()

    def __rich__(self) -> RenderableType:
        from truestep.machine.memory.screen import memory_report_table

        return memory_report_table(self)


def free_memory(
    *, largest: int = 10, forget_last_error: bool = False, end: Sequence[int] = ()
) -> MemoryReport:
    """Free unreachable objects and torch's caches; report memory before and after and what holds the rest.

    In this order, as each step gives to the next: Python's garbage, memory shared with processes that
    have ended, cuBLAS workspaces and autocast's casts, the allocator's cache, pinned host memory, and the
    C heap. Live tensors are never freed: the `largest` are listed with what holds them. After an
    error in a notebook its traceback holds every tensor of the functions that were running;
    `forget_last_error` drops it. `end` names other processes of this user that hold a card, to be ended
    (they get 10 s to clean up). Neither imports torch nor starts CUDA.
    """
    before = measure_memory()
    endings = _end_processes(end)
    for name in _LAST_ERROR if forget_last_error else ():
        vars(sys).pop(name, None)
    collected = release_cached_memory()
    after = measure_memory()
    storages = LiveStorages()
    return MemoryReport(
        before=before,
        after=after,
        collected_objects=collected,
        tensors=largest_live_tensors(storages, storages.largest()[:largest]),
        num_storages=len(storages.storages),
        unseen_bytes=_bytes_not_in_live_tensors(after, storages),
        last_error_kept=any(getattr(sys, name, None) is not None for name in _LAST_ERROR),
        processes=holding_processes(read_gpus()),
        endings=endings,
    )


def _end_processes(pids: Sequence[int]) -> tuple[ProcessEndResult, ...]:
    if not pids:
        return ()
    holding = holding_processes(read_gpus())
    return tuple(end_process(pid, holding) for pid in pids)


def release_cached_memory() -> int:
    """Give back all that nothing refers to, in `free_memory`'s order; returns the objects collected."""
    collected = gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "clear_autocast_cache"):
        torch.clear_autocast_cache()
    accelerator = accelerator_in_use()
    if torch is not None and accelerator is not None:
        _release_device_cache(torch, accelerator)
    # glibc keeps freed memory for the next allocation; other systems' heaps have no such call
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return collected


def _release_device_cache(torch: Any, accelerator: Any) -> None:
    if torch.cuda.is_initialized():
        torch.cuda.ipc_collect()
        # private, and the only way: workspaces live in the allocator and are never given back by it
        torch._C._cuda_clearCublasWorkspaces()
    accelerator.empty_cache()
    empty_host = getattr(accelerator, "empty_host_cache", None)  # torch 2.13
    if empty_host is not None:
        empty_host()


def largest_live_tensors(storages: LiveStorages, keys: list[int]) -> tuple[LiveTensor, ...]:
    """Return the records of some storages, each with what holds it."""
    own = [storages.tensors, storages.storages, storages.owners, *storages.tensors.values()]
    holders = ReferrerPathFinder(ignored=own)
    return tuple(
        describe_storage(
            storages.tensors[key], storages.storages[key], _paths_to_storage(holders, storages, key)
        )
        for key in keys
    )


def _paths_to_storage(holders: ReferrerPathFinder, storages: LiveStorages, key: int) -> tuple[str, ...]:
    paths: dict[str, None] = {}
    for tensor in storages.tensors[key][:_MAX_TENSORS_ASKED]:
        owner = storages.owners.get(id(tensor))
        if owner is not None:
            paths |= dict.fromkeys(f"{path}.grad" for path in holders.paths_to(owner))
        paths |= dict.fromkeys(holders.paths_to(tensor))
    return tuple(paths)[:MAX_PATHS]


def _bytes_not_in_live_tensors(amounts: MemoryAmounts, storages: LiveStorages) -> int | None:
    if not amounts.devices:
        return None
    kept = ((device.allocated_bytes, storages.bytes_on(device.device)) for device in amounts.devices)
    return sum(max(0, allocated - seen) for allocated, seen in kept)
