# SPDX-License-Identifier: Apache-2.0
"""Batches by length: every sample once, little padding, no batch over its limit."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.core.errors import DataError
from truestep.engine.data import ByLength, DataOptions, by_length, open_source, per_sample_numbers
from truestep.engine.data.keys import derive_sample_key, sample_keys_at
from truestep.engine.data.order_construction import choose_batch_order
from truestep.engine.data.permutation import SamplePermutation


def opened(lengths, seed=0, **options):
    return open_source(torch.arange(len(lengths)), DataOptions(**options), seed=seed)


def batches(source, epoch=0, start=0):
    return [batch.tolist() for batch in source.batches(epoch, start)]


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=300),
    batch_size=st.none() | st.integers(1, 20),
    max_tokens=st.none() | st.integers(60, 400),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
    data=st.data(),
)
def test_every_sample_once_within_the_limits_from_any_start(
    lengths, batch_size, max_tokens, shuffle, epoch, data
):
    if batch_size is None and max_tokens is None:
        batch_size = 4
    wanted = ByLength(lengths=lengths, max_tokens=max_tokens)
    source = opened(lengths, by_length=wanted, batch_size=batch_size, shuffle=shuffle)
    order = batches(source, epoch)
    assert list(range(len(lengths))) == sorted(index for batch in order for index in batch)
    assert len(order) == len(source)
    if max_tokens:
        assert max_tokens >= max(len(batch) * max(lengths[i] for i in batch) for batch in order)
    if batch_size:
        assert batch_size >= max(len(batch) for batch in order)
    start = data.draw(st.integers(0, len(order)))
    assert order[start:] == batches(
        opened(lengths, by_length=wanted, batch_size=batch_size, shuffle=shuffle), epoch, start
    )


def test_little_is_padded_and_batches_differ_between_epochs():
    lengths = np.random.default_rng(0).integers(1, 500, 5000)
    source = opened(lengths, by_length=lengths, batch_size=32, shuffle=True)
    one, other = batches(source, 0), batches(source, 1)
    padded = sum(len(batch) * lengths[batch].max() for batch in one)
    assert padded < 1.1 * lengths.sum()
    assert len({tuple(sorted(b)) for b in one} & {tuple(sorted(b)) for b in other}) < len(one) // 20
    means = np.array([lengths[batch].mean() for batch in one])
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3, "short batches must not come first"


def test_without_shuffle_the_shortest_come_first():
    assert batches(opened([9, 1, 5, 1], by_length=[9, 1, 5, 1], batch_size=2)) == [[1, 3], [2, 0]]


def test_drop_last_leaves_out_other_samples_every_epoch():
    lengths = list(range(1, 11))
    source = opened(lengths, by_length=lengths, batch_size=4, shuffle=True, drop_last=True)
    left_out = [set(range(10)) - {i for batch in batches(source, e) for i in batch} for e in range(20)]
    assert {2} == {len(samples) for samples in left_out}
    assert len(set.union(*left_out)) > 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by_length": [1, 2], "batch_size": 2}, "shape (2,)"),
        ({"by_length": [1, 2, float("nan")], "batch_size": 2}, "lengths[2] is nan"),
        ({"by_length": ["a", "b", "c"], "batch_size": 2}, "must be numbers"),
        ({"by_length": [1, 2, 3]}, "when a batch is full"),
        ({"by_length": ByLength(lengths=[1, 9, 3], max_tokens=8)}, "sample 1 has length 9"),
        ({"by_length": [1, 2, 3], "batch_size": 4, "drop_last": True}, "leaves no batch"),
    ],
)
def test_lengths_that_make_no_sense_are_refused(options, words):
    with pytest.raises(DataError) as caught:
        opened([1, 2, 3], **options)
    assert words in str(caught.value)


def order_by_one_sort(lengths, wanted, batch_size, seed, epoch, *, shuffle, drop_last):
    """Return an epoch's batches by one sort of all samples, as they were arranged at first: a slow reference."""
    lengths = np.asarray(lengths, dtype=np.float64)
    if shuffle and wanted.mix:
        buckets = np.floor(np.log(np.maximum(lengths, 1e-9)) / np.log1p(wanted.mix)).astype(np.int64)
    else:
        buckets = np.unique(lengths, return_inverse=True)[1]
    sizes = sizes_one_by_one(lengths, buckets, wanted.max_tokens, batch_size)
    sizes = sizes[: len(lengths) // batch_size] if drop_last else sizes
    samples, number = np.arange(len(lengths)), int(sum(sizes))
    if not shuffle:
        return cut(np.argsort(buckets, kind="stable")[:number], sizes)
    key = derive_sample_key(seed, "order by length", epoch)
    samples = np.sort(SamplePermutation(len(samples), key)(samples)[:number])
    by_length = samples[np.lexsort((sample_keys_at(key, samples), buckets[samples]))]
    batches = cut(by_length, sizes)
    return [batches[i] for i in SamplePermutation(len(sizes), key)(np.arange(len(sizes)))]


def sizes_one_by_one(lengths, buckets, max_tokens, batch_size):
    sizes, count = [], 0
    for bucket in np.sort(buckets):
        limit = lengths[buckets == bucket].max()
        if count and (count == batch_size or (max_tokens is not None and limit * (count + 1) > max_tokens)):
            sizes.append(count)
            count = 0
        count += 1
    return [*sizes, count]


def cut(samples, sizes):
    return [part.tolist() for part in np.split(samples, np.cumsum(sizes)[:-1])]


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(
        st.integers(0, 60) | st.sampled_from([0.5, 1.25, 1e-12, 70_000.0, 1 << 20]), min_size=1, max_size=200
    ),
    batch_size=st.integers(1, 20),
    tokens=st.none() | st.integers(1, 400),
    mix=st.sampled_from([0.0, 0.1, 0.5, 1e-6]),
    piece=st.sampled_from([1, 3, 50, 1 << 20]),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    epoch=st.integers(0, 2),
    seed=st.integers(0, 3),
)
def test_the_order_is_that_of_one_sort_of_all_samples(
    lengths, batch_size, tokens, mix, piece, shuffle, drop_last, epoch, seed
):
    max_tokens = None if tokens is None else tokens + int(max(lengths)) + 1
    drop_last = drop_last and max_tokens is None and batch_size <= len(lengths)
    wanted = ByLength(lengths=np.asarray(lengths), max_tokens=max_tokens, mix=mix)
    options = DataOptions(batch_size=batch_size, by_length=wanted, shuffle=shuffle, drop_last=drop_last)
    with pytest.MonkeyPatch.context() as patch:
        for module in (per_sample_numbers, by_length):
            patch.setattr(module, "PIECE", piece)
        order = choose_batch_order(len(lengths), options, seed)
        found = [request.indices.tolist() for request in order.requests(epoch, 0)]
    assert found == order_by_one_sort(
        lengths, wanted, batch_size, seed, epoch, shuffle=shuffle, drop_last=drop_last
    )


def test_a_sample_takes_few_bytes_while_its_order_is_made():
    lengths = np.random.default_rng(0).integers(1, 2048, 2_000_000).astype(np.int32)
    options = DataOptions(batch_size=512, by_length=ByLength(lengths=lengths), shuffle=True)
    tracemalloc.start()
    try:
        next(choose_batch_order(len(lengths), options, 0).requests(1, 100))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * len(lengths) + (64 << 20)  # one sort of all takes some 50
