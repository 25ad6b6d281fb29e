# SPDX-License-Identifier: Apache-2.0
"""Rank 0 of as many ranks as one likes, in one process: `python counts_among_many.py FOLDER STRATEGY SIZE NUM_TENSORS...`.

It counts what `counts_over_ranks.py` does. torch's fake process group sends nothing. Every
other rank gives what this one gives, and has said at the start what this one says. What the others would write of divided
weights is written here, too, and not counted: the parts of a thousand ranks are joined into one checkpoint.
"""

import json
import sys
from pathlib import Path

import counts_over_ranks
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from truestep.checkpoints.part_writer import CheckpointPartWriter
from truestep.checkpoints.state_codec import SavedTensorPiece
from truestep.core.state_trees import map_tree_leaves
from truestep.engine.processes.store_notes import RankProcess
from truestep.engine.strategies import buckets
from truestep.run import process_group_setup, run_checkpoints


def pretend(size):
    """Have this process be one of so many."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    store, me = dist.HashStore(), json.dumps(RankProcess.of_this_process())
    for rank in range(size):
        store.set(f"process/{rank}", me)
    process_group_setup._unused_part_of_store = lambda *_: store
    new_group = dist.new_group
    dist.new_group = lambda **_: new_group(backend="fake")
    dist.get_backend = lambda *_: "gloo"  # as the tensors of a CPU travel

    def write_heads(head, into, *, rank, size):
        into.view(size, -1)[:] = torch.tensor(head.words(), dtype=into.dtype)

    def write_riders(numbers, into, *, rank, size):
        alone = torch.zeros(len(into) // size, dtype=into.dtype)
        write_bucket_riders(numbers, alone, rank=0, size=1)
        into.view(size, -1)[:] = alone

    set_uncounted = dist.HashStore.set

    def write_parts(pieces, folder, state):
        for rank in range(1, size):
            tree = map_tree_leaves(lambda leaf, rank=rank: part_of(leaf, rank, size), state["learners"])
            writer = CheckpointPartWriter(rank, tell=lambda *_: None, background=False)
            writer.save(pieces._directory / folder, {"learners": tree})
            writer.close()
            set_uncounted(store, f"part/{folder}/{rank}", "true")

    run_checkpoints.ShardedSaving.write = write_parts
    write_bucket_riders = buckets.write_bucket_riders
    buckets.write_rank_head, buckets.write_bucket_riders = write_heads, write_riders


def part_of(leaf, rank, size):
    """Return what a rank has of a tensor that is cut along its first dimension."""
    if not isinstance(leaf, SavedTensorPiece):
        return None
    each = -(-leaf.whole[0] // size)
    begin = min(rank * each, leaf.whole[0])
    rows = leaf.tensor.new_zeros((min(each, leaf.whole[0] - begin), *leaf.whole[1:]))
    return SavedTensorPiece(tensor=rows, whole=leaf.whole, offset=(begin, *leaf.offset[1:]))


if __name__ == "__main__":
    folder, strategy, size, *numbers = sys.argv[1:]
    pretend(int(size))
    options = {"others_differ": False, "strategy": strategy}
    counts_over_ranks.main(Path(folder), [int(each) for each in numbers], **options)
