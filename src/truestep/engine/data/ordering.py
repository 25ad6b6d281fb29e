# SPDX-License-Identifier: Apache-2.0
"""From options to an order, with every number in them checked."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from truestep.core.errors import DataError
from truestep.core.wording import a_type
from truestep.engine.data.draws import SampleIndices, SequentialSamples, ShuffledSamples, WeightedSamples
from truestep.engine.data.keys import derive_sample_key, sample_keys_at
from truestep.engine.data.options import ByLength, DataOptions
from truestep.engine.data.order import POSITIONS_AT_ONCE, BatchBlock, BatchOrder, FixedSizeOrder
from truestep.engine.data.permutation import Indices, SamplePermutation

Lengths = npt.NDArray[np.float64]


def choose_batch_order(num_samples: int, options: DataOptions, seed: int) -> BatchOrder:
    """Return the order that `options` ask for."""
    if num_samples == 0:
        raise DataError(
            "the data set is empty: its len() is 0, so there is nothing to train on. Check its path."
        )
    if options.by_length is not None:
        return _by_length(num_samples, options, seed)
    if options.batch_size is None:
        raise DataError("batch_size is missing. Write how many samples make a batch, as in batch_size=32.")
    draw, drawn = _draw(num_samples, options, seed)
    _check_drop_last(drawn, options)
    return FixedSizeOrder(draw, num_samples=drawn, batch_size=options.batch_size, drop_last=options.drop_last)


def describe_data_options(options: DataOptions) -> dict[str, Any]:
    """Return, as JSON, the options that decide which samples a batch holds."""
    described: dict[str, Any] = {
        "batch_size": options.batch_size,
        "shuffle": options.shuffle,
        "drop_last": options.drop_last,
    }
    if options.weights is not None:
        described |= {"weights": _digest(options.weights), "num_samples": options.num_samples}
    if options.by_length is not None:
        wanted = _wanted(options.by_length)
        described |= {"lengths": _digest(wanted.lengths), "max_tokens": wanted.max_tokens, "mix": wanted.mix}
    return described


def _digest(values: Any) -> str:
    plain = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
    return hashlib.blake2b(np.asarray(plain, dtype=np.float64).tobytes(), digest_size=16).hexdigest()


def _wanted(by_length: Any) -> ByLength:
    return by_length if isinstance(by_length, ByLength) else ByLength(lengths=by_length)


def _draw(num_samples: int, options: DataOptions, seed: int) -> tuple[SampleIndices, int]:
    if options.weights is None:
        return (ShuffledSamples(num_samples, seed) if options.shuffle else SequentialSamples()), num_samples
    weights = _numbers("weights", options.weights, num_samples)
    if not weights.any():
        raise DataError(
            f"all {num_samples} weights are 0, so no sample can be drawn. Give one a positive weight."
        )
    return WeightedSamples(weights, seed), options.num_samples or num_samples


def _by_length(num_samples: int, options: DataOptions, seed: int) -> BatchOrder:
    wanted = _wanted(options.by_length)
    lengths = _numbers("lengths", wanted.lengths, num_samples)
    buckets = sample_length_buckets(lengths, wanted.mix if options.shuffle else 0.0)
    if wanted.max_tokens is not None:
        sizes = batch_sizes_by_tokens(lengths, buckets, wanted.max_tokens, options.batch_size)
    elif options.batch_size is not None:
        _check_drop_last(num_samples, options)
        sizes = even_batch_sizes(num_samples, options.batch_size, drop_last=options.drop_last)
    else:
        raise DataError(
            "by_length needs to know when a batch is full. Write batch_size=32, or "
            "by_length=ByLength(lengths=..., max_tokens=4096)."
        )
    return BucketedByLength(buckets, sizes, seed if options.shuffle else None)


def _check_drop_last(num_samples: int, options: DataOptions) -> None:
    if options.drop_last and options.batch_size is not None and options.batch_size > num_samples:
        raise DataError(
            f"batch_size={options.batch_size} with drop_last=True leaves no batch of {num_samples} samples. "
            f"Write a batch_size of at most {num_samples}, or leave drop_last out."
        )


def _numbers(name: str, values: Any, num_samples: int) -> npt.NDArray[np.float64]:
    """Return one finite number of at least 0 per sample."""
    plain = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
    try:
        numbers = np.asarray(plain, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be numbers, one per sample; this is {a_type(values)}.") from error
    if numbers.shape != (num_samples,):
        raise DataError(
            f"{name} has shape {numbers.shape} and the data has {num_samples} samples: which number belongs "
            f"to which sample is unclear. Give one number per sample, shape ({num_samples},)."
        )
    wrong = np.flatnonzero(~np.isfinite(numbers) | (numbers < 0))
    if wrong.size:
        raise DataError(
            f"{name}[{wrong[0]}] is {numbers[wrong[0]]:g}; {wrong.size} of {num_samples} {name} are "
            "negative, infinite or NaN, and mean nothing here. Give finite numbers of at least 0."
        )
    return numbers


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
