# SPDX-License-Identifier: Apache-2.0
"""Batches of samples of similar lengths."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from truestep.core.errors import DataError
from truestep.engine.data.keys import Keys, derive_sample_key, sample_keys_at
from truestep.engine.data.order import POSITIONS_AT_ONCE, BatchBlock, BatchOrder
from truestep.engine.data.per_sample_numbers import PIECE, SampleNumbers
from truestep.engine.data.permutation import Indices, SamplePermutation

Buckets = npt.NDArray[np.integer]


class LengthBuckets:
    """Samples by bucket, the shortest first: lengths that differ by a share of less than `mix` may share one.

    Four bytes a sample are kept (eight from two thousand million on).
    """

    def __init__(self, lengths: SampleNumbers, mix: float) -> None:
        buckets = _buckets_of_whole_lengths(lengths) if mix == 0 else _buckets_by_share(lengths, mix)
        # in a bucket by number; where buckets have 16 bits, NumPy counts in the place of comparing
        self.samples = np.argsort(buckets, kind="stable").astype(_index_type(len(buckets)))
        self.starts = _bucket_starts(buckets, self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def longest(self, lengths: SampleNumbers) -> npt.NDArray[np.float64]:
        """Return the longest length in each bucket."""
        found = np.zeros(len(self.starts))
        bucket_of = np.empty(len(self), dtype=_index_type(len(self.starts)))
        for number, (start, stop) in enumerate(self.bucket_ranges()):
            bucket_of[self.samples[start:stop]] = number
        for start, piece in lengths.pieces():
            np.maximum.at(found, bucket_of[start : start + len(piece)], piece)
        return found

    def bucket_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield where each bucket lies."""
        ends = [*self.starts[1:].tolist(), len(self)]
        yield from zip(self.starts.tolist(), ends, strict=True)

    def without_samples(self, samples: Indices) -> "LengthBuckets":
        """Return the buckets that are left without some samples."""
        stay = np.ones(len(self), dtype=bool)
        stay[samples] = False
        stay = stay[self.samples]
        left = object.__new__(LengthBuckets)
        left.samples = self.samples[stay]
        left.starts = (np.cumsum(stay) - stay)[self.starts]
        return left


def _index_type(size: int) -> type[np.signedinteger]:
    return np.int32 if size < 1 << 31 else np.int64


def _bucket_starts(buckets: Buckets, samples: Buckets) -> Indices:
    """Return where each bucket begins among the samples that were sorted by it."""
    found = [np.zeros(1, dtype=np.int64)]
    for start in range(1, len(samples), PIECE):
        here = buckets[samples[start - 1 : start + PIECE]]
        found.append(start + np.flatnonzero(here[1:] != here[:-1]))
    return np.concatenate(found)


def _buckets_by_share(lengths: SampleNumbers, mix: float) -> Buckets:
    """Return each sample's bucket, in as few bits as hold them all."""

    def bucket_numbers(some: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.floor(np.log(np.maximum(some, 1e-9)) / np.log1p(mix))  # type: ignore[no-any-return]

    ends = [bucket_numbers(np.array([piece.min(), piece.max()])) for _, piece in lengths.pieces()]
    most = max(float(np.abs(pair).max()) for pair in ends)
    buckets = np.empty(lengths.shape[0], dtype=np.int16 if most < 1 << 15 else np.int64)
    for start, piece in lengths.pieces():
        buckets[start : start + len(piece)] = bucket_numbers(piece)
    return buckets


def _buckets_of_whole_lengths(lengths: SampleNumbers) -> Buckets:
    """Return a bucket for each length; whole numbers of 16 bits are their own."""
    if all((piece == np.floor(piece)).all() and piece.max() < 1 << 16 for _, piece in lengths.pieces()):
        buckets = np.empty(lengths.shape[0], dtype=np.uint16)
        for start, piece in lengths.pieces():
            buckets[start : start + len(piece)] = piece
        return buckets
    every = np.concatenate([piece for _, piece in lengths.pieces()])
    return np.unique(every, return_inverse=True)[1]


class BucketedByLength(BatchOrder):
    """Samples sorted into buckets of similar length and cut into batches; each batch once an epoch.

    Where the cuts lie depends on the lengths alone, so every epoch has as many batches; which samples of
    a bucket stand together, and when their batch comes, depends on (seed, epoch). An epoch's order costs
    a sort of each bucket, unlike that of a uniform order: some 10 s for 100 million samples.
    """

    num_batches: int
    num_samples: int

    def __init__(self, buckets: LengthBuckets, sizes: Indices, seed: int | None) -> None:
        """Take the buckets, and the batches' sizes from the shortest samples on; no seed: no shuffling."""
        self._buckets, self._sizes, self._seed = buckets, sizes, seed
        self._latest: tuple[int, Buckets, Indices, Indices] | None = None
        self.num_batches = len(sizes)
        self.num_samples = int(sizes.sum())

    def blocks(self, epoch: int, start: int) -> Iterator[BatchBlock]:
        """Yield the batches of `epoch` from number `start` on, several at a time."""
        samples, firsts, sizes = self._batches_of_epoch(epoch)
        ends = np.cumsum(sizes)
        while start < len(sizes):
            first = int(ends[start] - sizes[start])
            stop = max(start + 1, int(np.searchsorted(ends, first + POSITIONS_AT_ONCE, side="right")))
            some = sizes[start:stop]
            within = np.arange(int(some.sum())) - np.repeat(np.cumsum(some) - some, some)
            indices = samples[np.repeat(firsts[start:stop], some) + within].astype(np.int64)
            yield BatchBlock(first, indices, some.tolist())
            start = stop

    def _batches_of_epoch(self, epoch: int) -> tuple[Buckets, Indices, Indices]:
        """Return the samples of `epoch` by length, and of its batches, in order, where among them each begins, and its size."""
        if self._latest is None or self._latest[0] != epoch:
            self._latest = None  # one order is in memory at a time
            self._latest = epoch, *self._arrange_epoch(epoch)
        return self._latest[1:]

    def _arrange_epoch(self, epoch: int) -> tuple[Buckets, Indices, Indices]:
        firsts = np.cumsum(self._sizes) - self._sizes
        if self._seed is None:
            return self._buckets.samples, firsts, self._sizes
        key = derive_sample_key(self._seed, "order by length", epoch)
        buckets, num_all = self._buckets, len(self._buckets)
        if self.num_samples < num_all:  # drop_last: other samples every epoch, not the longest
            last = np.arange(self.num_samples, num_all)
            buckets = buckets.without_samples(SamplePermutation(num_all, key)(last))
        # In a bucket samples stand in an order of the epoch's own, and so do the batches, or short ones would always come first.
        samples = np.empty_like(buckets.samples)
        for start, stop in buckets.bucket_ranges():
            some = buckets.samples[start:stop]
            samples[start:stop] = some[np.argsort(_sample_keys(key, some))]
        order = SamplePermutation(len(self._sizes), key)(np.arange(len(self._sizes)))
        return samples, firsts[order], self._sizes[order]


def _sample_keys(key: int, samples: Buckets) -> Keys:
    """Return a key of its own for each sample."""
    found = np.empty(len(samples), dtype=np.uint64)
    for start in range(0, len(samples), PIECE):
        found[start : start + PIECE] = sample_keys_at(key, samples[start : start + PIECE].astype(np.int64))
    return found


def even_batch_sizes(num_samples: int, batch_size: int, *, drop_last: bool) -> Indices:
    """Return the sizes of batches of `batch_size` samples and, unless it is dropped, of the rest."""
    full, rest = divmod(num_samples, batch_size)
    return np.array([batch_size] * full + [rest] * (rest > 0 and not drop_last), dtype=np.int64)


def batch_sizes_by_tokens(
    lengths: SampleNumbers, buckets: LengthBuckets, max_tokens: int, batch_size: int | None
) -> Indices:
    """Return the sizes of the largest batches that, padded, hold at most `max_tokens`.

    A sample counts as long as the longest of its bucket, since any of them may come in its place.
    """
    _check_longest_sample(lengths, max_tokens)
    sizes, count = [], 0
    for (start, stop), limit in zip(buckets.bucket_ranges(), buckets.longest(lengths).tolist(), strict=True):
        most = _max_samples_in_batch(limit, max_tokens, batch_size or len(buckets))
        if count >= most:  # what is left of the shorter ones is a batch without any of these
            sizes.append(np.array([count], dtype=np.int64))
            count = 0
        count += stop - start
        full = (count - 1) // most
        sizes.append(np.full(full, most, dtype=np.int64))
        count -= full * most
    return np.concatenate([*sizes, np.array([count], dtype=np.int64)])


def _max_samples_in_batch(limit: float, max_tokens: int, batch_size: int) -> int:
    """Return how many samples of a length a batch holds at most."""
    most = int(min(batch_size, max_tokens / limit + 1)) if limit > 0 else batch_size
    while most > 1 and limit * most > max_tokens:
        most -= 1
    return most


def _check_longest_sample(lengths: SampleNumbers, max_tokens: int) -> None:
    longest, at = -1.0, 0
    for start, piece in lengths.pieces():
        here = int(np.argmax(piece))
        if piece[here] > longest:
            longest, at = float(piece[here]), start + here
    if longest > max_tokens:
        raise DataError(
            f"sample {at} has length {longest:g}, more than max_tokens={max_tokens}: it fits "
            f"into no batch. Write max_tokens of at least {longest:g}, or leave such samples out."
        )
