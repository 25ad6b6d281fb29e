# SPDX-License-Identifier: Apache-2.0
"""Time to the first batch of a resumed epoch of 10³ to 10¹² samples: ours, and torch's sampler.

python benchmarks/data/seek.py
"""

import statistics
import time
import tracemalloc

import torch
from torch.utils.data import BatchSampler, RandomSampler

from truestep.engine.data.order import FixedSizeOrder
from truestep.engine.data.sample_draws import ShuffledSamples

BATCH = 512
REPEATS = 21


class Numbers:
    """A data set of any length that holds nothing."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


def ours(size, seed):
    order = FixedSizeOrder(ShuffledSamples(size, seed), num_samples=size, batch_size=BATCH, drop_last=False)
    return next(order.requests(seed, order.num_batches // 2)).indices


def replay(size, seed):
    """What a loader does that stores a count: draw the permutation again and throw batches away."""
    sampler = RandomSampler(Numbers(size), generator=torch.Generator().manual_seed(seed))
    batches = iter(BatchSampler(sampler, BATCH, drop_last=False))
    for _ in range(size // BATCH // 2):
        next(batches)
    return next(batches)


def seconds(function, size, repeats):
    times = []
    for seed in range(repeats):
        begin = time.perf_counter()
        function(size, seed)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def peak_bytes(size):
    tracemalloc.start()
    ours(size, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main():
    print(f"Entering a shuffled epoch in its middle, batches of {BATCH}; median of {REPEATS}")
    print(f"{'samples':>10} {'truestep':>12} {'memory':>10} {'RandomSampler, replayed':>26}")
    for exponent in range(3, 13):
        size = 10**exponent
        there = (
            f"{1e3 * seconds(replay, size, 3):,.1f} ms" if exponent <= 7 else "not run: minutes, gigabytes"
        )
        ours_ms = 1e3 * seconds(ours, size, REPEATS)
        print(
            f"{'10^' + str(exponent):>10} {ours_ms:>9.2f} ms {peak_bytes(size) / 1024:>6,.0f} KiB {there:>26}"
        )


if __name__ == "__main__":
    main()
