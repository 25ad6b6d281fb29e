# SPDX-License-Identifier: Apache-2.0
"""Rank 0 of as many ranks as one likes, in one process: `python counts_among_many.py FOLDER STRATEGY SIZE NUM_TENSORS...`.

It counts what `counts_over_ranks.py` does. torch's fake process group sends nothing. Every
other rank gives what this one gives, and has said at the start what this one says. Divided weights are not saved: each rank
writes its part, and nobody writes those of the others.
"""

import json
import sys
from pathlib import Path

import counts_over_ranks
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from truestep.engine.processes.notes import RankProcess
from truestep.engine.strategies import buckets
from truestep.run import together


def pretend(size):
    """Have this process be one of so many."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    store, me = dist.HashStore(), json.dumps(RankProcess.this())
    for rank in range(size):
        store.set(f"process/{rank}", me)
    together._fresh = lambda *_: store
    new_group = dist.new_group
    dist.new_group = lambda **_: new_group(backend="fake")
    dist.get_backend = lambda *_: "gloo"  # as the tensors of a CPU travel

    def write_heads(head, into, *, rank, size):
        into.view(size, -1)[:] = torch.tensor(head.words(), dtype=into.dtype)

    def write_riders(numbers, into, *, rank, size):
        alone = torch.zeros(len(into) // size, dtype=into.dtype)
        write_bucket_riders(numbers, alone, rank=0, size=1)
        into.view(size, -1)[:] = alone

    write_bucket_riders = buckets.write_bucket_riders
    buckets.write_rank_head, buckets.write_bucket_riders = write_heads, write_riders


if __name__ == "__main__":
    folder, strategy, size, *numbers = sys.argv[1:]
    pretend(int(size))
    divides = strategy == "fsdp"
    options = {"others_differ": False, "strategy": strategy, "saves": not divides}
    counts_over_ranks.main(Path(folder), [int(each) for each in numbers], **options)
