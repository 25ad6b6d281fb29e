# SPDX-License-Identifier: Apache-2.0
"""Orders of samples that lie in shards: how often a shard is opened with a cache of bounded size, and how well they are mixed.

A uniform order, `ts.BlockShuffle` and, where it is installed, MosaicML Streaming's py1e.
"""

import sys
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np

from truestep.engine.data.blocks import BlockShuffledSamples
from truestep.engine.data.sample_draws import ShuffledSamples

SHARDS, SIZE, BATCH, CACHES = 1000, 2000, 512, (16, 64)


def openings(shards, cache):
    """Return how often a shard is opened that is not among the `cache` shards used last."""
    kept, count = OrderedDict(), 0
    changes = np.flatnonzero(np.diff(shards, prepend=-1))
    for shard in shards[changes].tolist():
        if shard in kept:
            kept.move_to_end(shard)
            continue
        count += 1
        kept[shard] = True
        if len(kept) > cache:
            kept.popitem(last=False)
    return count


def row(name, order):
    """Print what an order costs, how many shards a batch has, and how far a sample moves from where it would stand."""
    begun = time.process_time()
    samples = order()
    seconds = time.process_time() - begun
    assert len(np.unique(samples)) == SHARDS * SIZE
    shards = samples // SIZE
    in_batch = np.mean(
        [len(np.unique(shards[at : at + BATCH])) for at in range(0, len(shards) - BATCH, 50 * BATCH)]
    )
    opened = [openings(shards, cache) for cache in CACHES]
    told = " | ".join(f"{each:,}" for each in opened)
    print(f"| {name} | {told} | {in_batch:.0f} | {1e6 * seconds / len(samples):.2f} µs |", flush=True)


def py1e():
    """Return Streaming's order as one node of one process has it, or None where it is not installed."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    try:
        from libraries.mosaicml import load_streaming

        load_streaming()
        from streaming.base.shuffle.py1e import get_shuffle_py1e
    except ImportError:
        return None
    return lambda size: get_shuffle_py1e(np.full(SHARDS, SIZE), 1, 7, 1, size)


def main():
    positions = np.arange(SHARDS * SIZE)
    caches = " | ".join(f"opened with a cache of {cache}" for cache in CACHES)
    print(f"| order | {caches} | shards in a batch | computed, a sample |\n|---|---|---|---|---|")
    row("`shuffle=True`", lambda: ShuffledSamples(SHARDS * SIZE, 0).indices(0, positions))
    sizes = np.full(SHARDS, SIZE)
    for window in (4, 16, 64):
        blocks = BlockShuffledSamples(sizes, window, 0)
        row(f"`BlockShuffle(window={window})`", lambda blocks=blocks: blocks.indices(0, positions))
    for size in (16_000, 1 << 18) if (order := py1e()) is not None else ():
        row(f"Streaming's `py1e`, blocks of {size:,}", lambda size=size: order(size))


if __name__ == "__main__":
    main()
