# SPDX-License-Identifier: Apache-2.0
"""Batches of samples of similar length: little padding, and still a function of (seed, epoch, batch)."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from truestep.core.errors import DataError
from truestep.engine.data.keys import derive_sample_key, sample_keys_at
from truestep.engine.data.order import POSITIONS_AT_ONCE, BatchBlock, BatchOrder
from truestep.engine.data.permutation import Indices, SamplePermutation

Lengths = npt.NDArray[np.float64]


class BucketedByLength(BatchOrder):
    """Samples sorted into buckets of similar length and cut into batches; each batch once an epoch.

    Where the cuts lie depends on the lengths alone, so every epoch has as many batches; which samples of
    a bucket stand together, and when their batch comes, depends on (seed, epoch). An epoch's order costs
    a sort, O(n log n), unlike that of a uniform order.
    """

    def __init__(self, buckets: Indices, sizes: Indices, seed: int | None) -> None:
        """Take each sample's bucket, and the batches' sizes from the shortest on; no seed: no shuffling."""
        self._buckets, self._sizes, self._seed = buckets, sizes, seed
        self._latest: tuple[int, Indices, Indices] | None = None
        self.num_batches = len(sizes)
        self.num_samples = int(sizes.sum())

    def blocks(self, epoch: int, start: int) -> Iterator[BatchBlock]:
        """Yield the batches of `epoch` from number `start` on, several at a time."""
        indices, sizes = self._epoch(epoch)
        ends = np.cumsum(sizes)
        while start < len(sizes):
            first = int(ends[start] - sizes[start])
            stop = max(start + 1, int(np.searchsorted(ends, first + POSITIONS_AT_ONCE, side="right")))
            yield BatchBlock(first, indices[first : ends[stop - 1]], sizes[start:stop].tolist())
            start = stop

    def _epoch(self, epoch: int) -> tuple[Indices, Indices]:
        """Return the samples of `epoch` in order, and the sizes of its batches."""
        if self._latest is None or self._latest[0] != epoch:
            self._latest = epoch, *self._arranged(epoch)
        return self._latest[1:]

    def _arranged(self, epoch: int) -> tuple[Indices, Indices]:
        samples = np.arange(len(self._buckets))
        if self._seed is None:
            return np.argsort(self._buckets, kind="stable")[: self.num_samples], self._sizes
        key = derive_sample_key(self._seed, "order by length", epoch)
        if self.num_samples < len(samples):  # drop_last: other samples every epoch, not the longest
            samples = np.sort(SamplePermutation(len(samples), key)(samples)[: self.num_samples])
        # In a bucket samples stand in an order of the epoch's own, and so do the batches, or short ones would always come first.
        by_length = samples[np.lexsort((sample_keys_at(key, samples), self._buckets[samples]))]
        order = SamplePermutation(len(self._sizes), key)(np.arange(len(self._sizes)))
        sizes = self._sizes[order]
        starts = (np.cumsum(self._sizes) - self._sizes)[order]
        within = np.arange(self.num_samples) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return by_length[np.repeat(starts, sizes) + within], sizes


def sample_length_buckets(lengths: Lengths, mix: float) -> Indices:
    """Return each sample's bucket: lengths that differ by a share of less than `mix` may share one."""
    if mix == 0:
        buckets: Indices = np.unique(lengths, return_inverse=True)[1].astype(np.int64)
    else:
        buckets = np.floor(np.log(np.maximum(lengths, 1e-9)) / np.log1p(mix)).astype(np.int64)
    return buckets


def even_batch_sizes(num_samples: int, batch_size: int, *, drop_last: bool) -> Indices:
    """Return the sizes of batches of `batch_size` samples and, unless it is dropped, of the rest."""
    full, rest = divmod(num_samples, batch_size)
    return np.array([batch_size] * full + [rest] * (rest > 0 and not drop_last), dtype=np.int64)


def batch_sizes_by_tokens(
    lengths: Lengths, buckets: Indices, max_tokens: int, batch_size: int | None
) -> Indices:
    """Return the sizes of the largest batches that, padded, hold at most `max_tokens`.

    A sample counts as long as the longest of its bucket, since any of them may come in its place.
    """
    longest = int(np.argmax(lengths))
    if lengths[longest] > max_tokens:
        raise DataError(
            f"sample {longest} has length {lengths[longest]:g}, more than max_tokens={max_tokens}: it fits "
            f"into no batch. Write max_tokens of at least {lengths[longest]:g}, or leave such samples out."
        )
    order = np.argsort(buckets, kind="stable")
    _, first_of_bucket, counts = np.unique(buckets[order], return_index=True, return_counts=True)
    limits = np.repeat(np.maximum.reduceat(lengths[order], first_of_bucket), counts).tolist()
    sizes, count = [], 0
    for limit in limits:
        if count and (limit * (count + 1) > max_tokens or count == batch_size):
            sizes.append(count)
            count = 0
        count += 1
    return np.array([*sizes, count], dtype=np.int64)
