# SPDX-License-Identifier: Apache-2.0
"""What a block of code leaves behind in memory."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from truestep.core.result_display import RenderableType, Result
from truestep.machine.memory.amounts import MemoryAmounts, measure_memory
from truestep.machine.memory.free import largest_live_tensors, release_cached_memory
from truestep.machine.memory.tensors import LiveStorages, LiveTensor


@dataclass(kw_only=True)
class LeftoverMemory(Result):
    """Memory before and after a block, and the tensors that it made and that are still alive.

    Complete once the block has ended; before that `after` is None.
    """

    before: MemoryAmounts
    after: MemoryAmounts | None = None
    tensors: tuple[LiveTensor, ...] = ()
    num_storages: int = 0
    storage_bytes: int = field(default=0)

    def __rich__(self) -> RenderableType:
        from truestep.machine.memory.screen import leftover_memory_table

        return leftover_memory_table(self.before, self.after, self.tensors, self.num_storages)


@contextmanager
def leftover_memory(*, largest: int = 10) -> Iterator[LeftoverMemory]:
    """Report what a block leaves behind: tensors that were not there before it, with what holds them.

    Garbage and caches are released before and after, so that only what is still held counts. A view of an
    older tensor is nothing new; an older tensor written to in place is not either.
    """
    release_cached_memory()
    leftover = LeftoverMemory(before=measure_memory())
    old = _weak_references_by_storage(LiveStorages())
    try:
        yield leftover
    finally:
        _record_leftover(leftover, old, largest)


def _record_leftover(leftover: LeftoverMemory, old: Collection[int], largest: int) -> None:
    # a function of its own: after an error its locals would live in the traceback, and hold every tensor
    release_cached_memory()
    leftover.after = measure_memory()
    storages = LiveStorages()
    new = [key for key in storages.largest() if key not in old]
    leftover.num_storages = len(new)
    leftover.storage_bytes = sum(storages.storages[key].nbytes() for key in new)
    leftover.tensors = largest_live_tensors(storages, new[:largest])


def _weak_references_by_storage(storages: LiveStorages) -> dict[int, Any]:
    """Return a weak reference per storage: it keeps the number from being used again, but not the memory."""
    if not storages.storages:
        return {}
    from torch.multiprocessing.reductions import StorageWeakRef

    weak: Any = StorageWeakRef
    return {key: weak(storage) for key, storage in storages.storages.items()}
