# SPDX-License-Identifier: Apache-2.0
"""What a start costs grows with the number of ranks and tensors as little as it can: counted, not timed."""

import threading
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from truestep.engine import gradient_hooks
from truestep.engine.processes.flat_tensors import FlatPiece, divide_into_pieces
from truestep.engine.processes.store_notes import RankNotes
from truestep.engine.strategies import buckets
from truestep.engine.strategies.buckets import (
    BUCKET_BYTES,
    FIRST_BUCKET_BYTES,
    GradientBuckets,
    divide_into_buckets,
)
from truestep.engine.strategies.first_message import FirstMessage, RankMessageHead

DTYPES = [torch.float32, torch.float64, torch.bool, torch.int64, torch.complex64, torch.bfloat16]
TENSORS = st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)), max_size=12)


def drawn_tensor(dtype, shape):
    numbers = torch.randn(shape) * 3
    return (numbers.T if len(shape) == 2 else numbers).to(dtype)


@given(TENSORS, st.integers(1, 200))
def test_tensors_arrive_as_they_were_whatever_pieces_they_travel_in(drawn, limit):
    tensors = [drawn_tensor(dtype, shape) for dtype, shape in drawn]
    there = [torch.zeros_like(each) for each in tensors]
    pieces = list(zip(divide_into_pieces(tensors, limit), divide_into_pieces(there, limit), strict=True))
    for source, target in pieces:
        sent, received = FlatPiece(source), FlatPiece(target)
        sent.fill()
        received.sent.copy_(sent.sent)
        received.write_back()
        assert len(source) == 1 or sum(each.nbytes for each in source) <= limit
    assert sum(len(source) for source, _ in pieces) == len(tensors)
    assert all(torch.equal(each, other) for each, other in zip(tensors, there, strict=True))


def test_ten_thousand_tensors_travel_in_one_message():
    tensors = [torch.zeros(10) for _ in range(10_000)]
    assert len(list(divide_into_pieces(tensors))) == 1


class SizedParameter(SimpleNamespace):
    """Stands for a parameter, and counts how often its size is asked for."""

    device = torch.device("cpu")
    num_asked = 0

    @property
    def nbytes(self):
        self.num_asked += 1
        return self.size


@given(st.lists(st.tuples(st.integers(0, 3 * FIRST_BUCKET_BYTES), st.sampled_from(DTYPES[:2])), max_size=60))
def test_the_layout_asks_each_parameter_once_and_closes_a_bucket_once_it_is_large_enough(drawn):
    parameters = [SizedParameter(size=size, dtype=dtype) for size, dtype in drawn]
    buckets = divide_into_buckets(list(enumerate(parameters)))
    assert all(each.num_asked == 1 for each in parameters)
    assert sorted(index for bucket in buckets for index, _ in bucket) == list(range(len(parameters)))
    for number, bucket in enumerate(buckets):
        limit = BUCKET_BYTES if number else FIRST_BUCKET_BYTES
        assert len({each.dtype for _, each in bucket}) == 1
        assert [index for index, _ in bucket] == sorted(index for index, _ in bucket)
        assert sum(each.size for _, each in bucket[:-1]) < limit


class CountedStore:
    """A store whose requests are counted."""

    def __init__(self, store):
        self._store, self.num_requests = store, 0

    def __getattr__(self, name):
        self.num_requests += name != "has_extended_api"
        return getattr(self._store, name)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_a_rank_asks_the_store_as_often_among_many_as_alone(size):
    store = dist.HashStore()
    counted = [CountedStore(store) for _ in range(size)]
    found = [None] * size

    def start(rank):
        found[rank] = RankNotes(counted[rank], rank, size)

    threads = [threading.Thread(target=start, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.num_requests for each in counted} == {3}
    assert all(notes.processes == found[0].processes and len(notes.processes) == size for notes in found)


class Layouts:
    """The buckets of ten layers, of which some train; what is laid out, and which memory there is."""

    def __init__(self, monkeypatch):
        self.parameters = [torch.nn.Parameter(torch.zeros(100)) for _ in range(10)]
        weights = SimpleNamespace(parameters=self.parameters, sparse=[], has_half=False)
        message = FirstMessage(2)
        message.add(self.parameters)
        world = SimpleNamespace(size=2, rank=0, sums_on_host=True)
        self.buckets = GradientBuckets([weights], world, message)
        self.num_made = 0
        monkeypatch.setattr(buckets, "divide_into_buckets", self._counted)

    def _counted(self, *given):
        self.num_made += 1
        return divide_into_buckets(*given)

    def use(self, frozen, head=None):
        """Lay out with these layers frozen, as an update does; return the buckets, whose memory is there."""
        for place, parameter in enumerate(self.parameters):
            parameter.requires_grad_(place not in frozen)
        self.buckets._lay_out(head)
        for bucket in self.buckets._buckets:
            bucket.make()
        held = sorted(index for bucket in self.buckets._buckets for index in bucket.indices)
        assert held == sorted(9 - place for place in {*range(10)} - frozen)  # the last layer is the first
        return list(self.buckets._buckets)


def test_one_word_for_all_tells_which_gradient_has_come(monkeypatch):
    """A weak method is the dearest that a hook has."""
    made = []

    def weakly(method):
        made.append(method)
        return lambda index, parameter: come.append((index, parameter))

    monkeypatch.setattr(gradient_hooks, "weak_method_callback", weakly)
    come, parameters = [], [torch.nn.Parameter(torch.zeros(1000)) for _ in range(300)]
    weights = SimpleNamespace(parameters=parameters, sparse=[], has_half=False)
    (message := FirstMessage(2)).add(parameters)
    found = GradientBuckets([weights], SimpleNamespace(size=2, rank=0, sums_on_host=True), message)
    found._lay_out(RankMessageHead(0, 0, 0, 0, 0, draws=False))
    assert len(found._buckets) == 2  # of the last one none is followed
    sum(each.sum() for each in parameters).backward()
    assert len(made) == 1
    assert sorted(index for index, _ in come) == sorted(found._buckets[0].indices)
    assert all(parameter is found._owners[index][1] for index, parameter in come)


def memory(kept):
    return sum(each.numel() for bucket in kept for each in bucket.views)


@pytest.mark.parametrize("head", [None, RankMessageHead(0, 0, 0, 0, 0, draws=False)])
def test_weights_that_are_frozen_and_trained_in_turns_are_laid_out_once(monkeypatch, head):
    layouts = Layouts(monkeypatch)
    first, second = layouts.use({0, 1, 2}, head), layouts.use({5, 6, 7}, head)
    for _ in range(3):
        assert layouts.use({0, 1, 2}, head) == first
        assert layouts.use({5, 6, 7}, head) == second
    assert layouts.num_made == 2
    assert memory(first) == memory(second) == 700  # made once


def test_a_layout_that_does_not_come_back_holds_no_memory_and_two_are_kept(monkeypatch):
    layouts = Layouts(monkeypatch)
    whole = layouts.use(set())
    frozen = layouts.use({0, 1})
    assert (memory(whole), memory(frozen)) == (0, 800)
    assert layouts.use(set()) == whole
    assert memory(whole) == 1000
    layouts.use({3})  # in the place of the one that was used before the last
    assert layouts.use(set()) == whole
    assert layouts.num_made == 3
    assert layouts.use({0, 1}) != frozen
    assert layouts.num_made == 4
