# SPDX-License-Identifier: Apache-2.0
"""Examples that count nothing, for a process that must call the loss as often as the others and has none left."""

from collections.abc import Sequence

from torch import Tensor

from truestep.core.errors import BatchError
from truestep.engine.batches import Batch, map_batch_tensors
from truestep.engine.counting import BatchCounting
from truestep.engine.processes.packing import pack_rank_message, unpack_rank_message
from truestep.engine.processes.world import World


def shared_example(batch: Batch, counting: BatchCounting, counts: Sequence[int], world: World) -> Batch:
    """Return one example of this process's part of the batch; where it has none, of the first process that has some.

    Every process calls it. Tensors alone travel: what is around them is that of the empty batch.
    """
    source = next(rank for rank, count in enumerate(counts) if count)
    own = counting.first(batch) if counts[world.rank] else None
    sent = pack_rank_message(_tensors(own)) if world.rank == source else b""
    found = world.share_bytes(sent, "an example for ranks without any")
    return _with_tensors(batch, unpack_rank_message(found[source])) if own is None else own


def _tensors(batch: Batch) -> list[Tensor]:
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_batch_tensors(note, batch)
    return found


def _with_tensors(batch: Batch, tensors: list[Tensor]) -> Batch:
    """Return a batch built like this one, with these tensors."""
    if len(_tensors(batch)) != len(tensors):
        raise BatchError(
            "This rank has no example of the batch, whose loss all ranks must call equally often, and it can't be lent one: an "
            "example's parts are not all tensors. Leave short batches out: run.data(..., drop_last=True)."
        )
    left = iter(tensors)
    return map_batch_tensors(lambda tensor: next(left).to(tensor.device), batch)
