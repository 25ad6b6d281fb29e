# SPDX-License-Identifier: Apache-2.0
"""From options to an order, with every number in them checked."""

from typing import Any

import numpy as np

from truestep.core.errors import DataError
from truestep.engine.data.blocks import BlockShuffledSamples, describe_block_shuffle
from truestep.engine.data.by_length import (
    BucketedByLength,
    LengthBuckets,
    batch_sizes_by_tokens,
    even_batch_sizes,
)
from truestep.engine.data.options import BlockShuffle, ByLength, DataOptions
from truestep.engine.data.order import BatchOrder, FixedSizeOrder
from truestep.engine.data.per_sample_numbers import SampleNumbers
from truestep.engine.data.sample_draws import (
    SampleIndices,
    SequentialSamples,
    ShuffledSamples,
    WeightedSamples,
)


def choose_batch_order(num_samples: int, options: DataOptions, seed: int) -> BatchOrder:
    """Return the order that `options` ask for."""
    if num_samples == 0:
        raise DataError("the data set is empty: its len() is 0. Check the path that it reads.")
    if options.by_length is not None:
        return _by_length_order(num_samples, options, seed)
    if options.batch_size is None:
        raise DataError(
            "batch_size is missing. Write how many samples make a batch, as in batch_size=32. Where each item is a whole batch "
            "already, read them one after another: run.data(lambda: batches)."
        )
    draw, drawn = choose_sample_indices(num_samples, options, seed), options.num_samples or num_samples
    _check_drop_last(drawn, options)
    return FixedSizeOrder(draw, num_samples=drawn, batch_size=options.batch_size, drop_last=options.drop_last)


def describe_data_options(options: DataOptions) -> dict[str, Any]:
    """Return, as JSON, the options that decide which samples a batch holds."""
    shuffle = options.shuffle
    described: dict[str, Any] = {
        "batch_size": options.batch_size,
        "shuffle": describe_block_shuffle(shuffle) if isinstance(shuffle, BlockShuffle) else shuffle,
        "drop_last": options.drop_last,
    }
    if options.weights is not None:
        described |= {
            "weights": SampleNumbers("weights", options.weights).digest(),
            "num_samples": options.num_samples,
        }
    if options.by_length is not None:
        wanted = _as_by_length(options.by_length)
        described |= {
            "lengths": SampleNumbers("lengths", wanted.lengths).digest(),
            "max_tokens": wanted.max_tokens,
            "mix": wanted.mix,
        }
    return described


def _as_by_length(by_length: Any) -> ByLength:
    return by_length if isinstance(by_length, ByLength) else ByLength(lengths=by_length)


def choose_sample_indices(num_samples: int, options: DataOptions, seed: int) -> SampleIndices:
    """Return which sample stands at a position."""
    if isinstance(options.shuffle, BlockShuffle):
        sizes = np.asarray(options.shuffle.block, dtype=np.int64)
        return BlockShuffledSamples(sizes, options.shuffle.window, seed)
    if options.weights is None:
        return ShuffledSamples(num_samples, seed) if options.shuffle else SequentialSamples()
    weights = SampleNumbers("weights", options.weights).check_one_per_sample(num_samples)
    if not any(piece.any() for _, piece in weights.pieces()):
        raise DataError(f"all {num_samples} weights are 0, so no sample can be drawn: raise one.")
    return WeightedSamples(weights, seed)


def _by_length_order(num_samples: int, options: DataOptions, seed: int) -> BatchOrder:
    wanted = _as_by_length(options.by_length)
    lengths = SampleNumbers("lengths", wanted.lengths).check_one_per_sample(num_samples)
    buckets = LengthBuckets(lengths, wanted.mix if options.shuffle else 0.0)
    if wanted.max_tokens is not None:
        sizes = batch_sizes_by_tokens(lengths, buckets, wanted.max_tokens, options.batch_size)
    elif options.batch_size is not None:
        _check_drop_last(num_samples, options)
        sizes = even_batch_sizes(num_samples, options.batch_size, drop_last=options.drop_last)
    else:
        raise DataError(
            "by_length needs to know when a batch is full. Write batch_size=32, or "
            "by_length=ByLength(lengths=lengths, max_tokens=4096)."
        )
    return BucketedByLength(buckets, sizes, seed if options.shuffle else None)


def _check_drop_last(num_samples: int, options: DataOptions) -> None:
    if options.drop_last and options.batch_size is not None and options.batch_size > num_samples:
        raise DataError(
            f"batch_size={options.batch_size} with drop_last=True leaves no batch of {num_samples} samples. "
            f"Write a batch_size of at most {num_samples}, or leave drop_last out."
        )
