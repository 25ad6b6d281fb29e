# SPDX-License-Identifier: Apache-2.0
"""Batches of every kind: counted, cut and moved, or refused with the sizes that were found."""

import dataclasses
from collections import OrderedDict, UserDict
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, unpack_sequence

import truestep as ts
from truestep.core.nested_structures import batch_leaves
from truestep.engine.batches import (
    BatchOrigin,
    EmptyBatchError,
    batch_to_device,
    count_examples,
    cut_batch,
    map_batch_tensors,
    split_along,
    try_count_examples,
)


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Record:
    x: torch.Tensor
    note: str = "kept"
    made: int = dataclasses.field(init=False, default=3)

    def __post_init__(self):
        assert isinstance(self.x, torch.Tensor)


class Graphs:
    """What no rule can know: nodes of several graphs in one tensor."""

    def __init__(self, nodes, owner):
        self.nodes, self.owner = nodes, owner


ROWS = torch.arange(10.0).reshape(5, 2)
RAGGED = [torch.full((n,), float(n)) for n in (3, 1, 4, 1, 5)]
# Each kind with the columns that it is made of: what is read off the parts must be what is read off the whole.
KINDS = {
    "tensor": (ROWS, lambda b: [b]),
    "array": (ROWS.numpy(), lambda b: [b]),
    "tuple": ((ROWS, torch.arange(5)), lambda b: [b[0], b[1]]),
    "list of columns": ([ROWS, torch.arange(5)], lambda b: [b[0], b[1]]),
    "dict": ({"x": ROWS, "y": torch.arange(5)}, lambda b: [b["x"], b["y"]]),
    "ordered": (OrderedDict(x=ROWS, y=torch.arange(5)), lambda b: [b["x"], b["y"]]),
    "user dict": (UserDict(x=ROWS), lambda b: [b["x"]]),
    "named tuple": (Point(ROWS, torch.arange(5)), lambda b: [b.x, b.y]),
    "data class": (Record(ROWS), lambda b: [b.x]),
    "namespace": (SimpleNamespace(x=ROWS, note="kept"), lambda b: [b.x]),
    "nested": (
        {"a": (ROWS, [ROWS, {"b": Point(ROWS, ROWS)}]), "c": Record(ROWS)},
        lambda b: [b["a"][0], b["a"][1][0], b["a"][1][1]["b"].y, b["c"].x],
    ),
    "ragged": ((RAGGED, torch.arange(5)), lambda b: [b[0], b[1]]),
    "ragged alone": (RAGGED, lambda b: [b]),
    "records": ([{"boxes": torch.ones(n, 4), "image": ROWS} for n in range(5)], lambda b: [b]),
    "like records": (
        [{"boxes": torch.zeros(3, 4), "i": torch.full((3,), i)} for i in range(5)],
        lambda b: [b],
    ),
    "detection": (
        ([torch.zeros(3, n, n) for n in range(1, 6)], [{"boxes": torch.zeros(n, 4)} for n in range(5)]),
        lambda b: [b[0], b[1]],
    ),
    "strings": ((ROWS, ["a", "b", "c", "d", "e"]), lambda b: [b[0], b[1]]),
    "empty list of default_collate": (((ROWS, ROWS), []), lambda b: [b[0][0], [str(b[1])] * len(b[0][1])]),
    "empty list in a dict": (
        {"x": ROWS, "boxes": [], "none": ()},
        lambda b: [b["x"], [(b["boxes"], b["none"])] * len(b["x"])],
    ),
    "strings alone": (["a", "b", "c", "d", "e"], lambda b: [b]),
    "with scalars": (
        {"x": ROWS, "temperature": torch.tensor(0.5), "name": "run", "none": None, "k": 3},
        lambda b: [b["x"], [(float(b["temperature"]), b["name"], b["none"], b["k"])] * len(b["x"])],
    ),
    "packed": (pack_sequence(sorted(RAGGED, key=len, reverse=True)), lambda b: [unpack_sequence(b)]),
    "packed unsorted": (pack_sequence(RAGGED, enforce_sorted=False), lambda b: [unpack_sequence(b)]),
    "packed with labels": (
        (pack_sequence(RAGGED, enforce_sorted=False), torch.arange(5)),
        lambda b: [unpack_sequence(b[0]), b[1]],
    ),
}


def plain(value):
    return map_batch_tensors(lambda tensor: tensor.tolist(), value)


def examples(read, batch):
    return [str(plain(example)) for example in zip(*read(batch), strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [[5], [1] * 5, [2, 3], [4, 1], [1, 3, 1]])
def test_parts_hold_the_examples_in_order(kind, sizes):
    batch, read = KINDS[kind]
    assert count_examples(batch) == 5
    parts = list(cut_batch(batch, sizes))
    assert [type(batch)] * len(sizes) == [type(part) for part in parts]
    assert sizes == [len(examples(read, part)) for part in parts]
    assert examples(read, batch) == [example for part in parts for example in examples(read, part)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_counted_for_a_split_is_what_a_whole_batch_is_checked_against(kind):
    assert try_count_examples(KINDS[kind][0]) in (5, None)


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(0, 3),
        (torch.zeros(0, 3), torch.zeros(0)),
        {"x": torch.zeros(0)},
        [],
        {"a": [], "b": []},
        np.zeros((0, 2)),
    ],
)
def test_an_empty_batch_is_refused_wherever_it_is_counted(make_learner, batch):
    for count in (count_examples, try_count_examples):
        with pytest.raises(EmptyBatchError, match="This batch is empty"):
            count(batch)
    learner = make_learner(nn.Linear(3, 1))
    for micro_batch in (None, 2, "auto"):
        with pytest.raises(ts.BatchError, match="This batch is empty"):
            learner.update(lambda _: learner(torch.ones(2, 3)).squeeze(1), batch, micro_batch=micro_batch)


class Opaque:
    def __init__(self):
        self.x = torch.zeros(4, 2)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            (torch.zeros(4, 2), torch.zeros(5)),
            r"differ along their leading dimension \(batch\[0\]: 4, batch\[1\]: 5\)",
        ),
        ({"x": torch.zeros(4), "y": {"z": torch.zeros(3)}}, r"batch\['y'\]\['z'\]: 3"),
        (Record(torch.tensor(1.0)), "holds no tensor with a leading dimension"),
        (None, "holds no tensor"),
        ("text", "holds no tensor"),
        (torch.tensor(3.0), "holds no tensor"),
        (Opaque(), "holds an Opaque, whose tensors are not looked into, so its examples can't be counted"),
        (("a", Opaque()), "holds an Opaque, whose"),
        (Graphs(ROWS, torch.zeros(5)), r"ts\.Split\(count, take\)"),
        (([torch.zeros(1)], [torch.zeros(1), torch.zeros(2)]), r"len\(batch\[0\]\): 1, len\(batch\[1\]\): 2"),
    ],
)
def test_what_can_not_be_counted_says_what_was_found(make_learner, batch, message):
    with pytest.raises(ts.BatchError, match=message):
        count_examples(batch)
    learner = make_learner(nn.Linear(3, 1))
    loss = lambda _: learner(torch.ones(2, 3)).squeeze(1)
    with pytest.raises(ts.BatchError, match=message):
        learner.update(loss, batch, micro_batch=1)
    assert float(learner.update(loss, batch).weight) == 2  # whole, the loss alone says how many there are


def test_images_in_a_list_are_not_counted_by_their_channels(make_learner):
    images = [torch.randn(3, 4, 4) for _ in range(4)]
    learner = make_learner(nn.Conv2d(3, 1, 4))
    loss = lambda batch: torch.cat([learner(image[None]).reshape(1) for image in batch])
    assert float(learner.update(loss, images).weight) == 4


def two_views(number):
    """Return two mappings of the same names, as samples of two views collate to."""
    return [{"x": torch.arange(float(number))}, {"x": torch.arange(float(number)) + 10}]


@pytest.mark.parametrize(
    ("batch", "number"),
    [
        (two_views(8), 8),
        (two_views(2), 2),
        ([[torch.arange(2.0), torch.arange(2.0)], torch.arange(2)], 2),
        ([torch.zeros(3, 4), torch.zeros(3)], 3),
    ],
)
def test_where_a_list_can_be_read_in_two_ways_its_maker_decides(batch, number):
    making = BatchOrigin(number, in_columns=True)
    assert try_count_examples(batch) in (None, number)
    assert try_count_examples(batch, making) == number
    for part in cut_batch(batch, [1] * number, making=making):
        assert len(part) == len(batch)
        assert {tensor.shape[0] for _, tensor in batch_leaves(part)} == {1}


def test_two_mappings_are_no_two_examples_for_sure(make_learner):
    learner = make_learner(nn.Linear(1, 1))
    update = learner.update(lambda b: (learner(b[0]["x"][:, None])[:, 0] - b[1]["x"]).square(), two_views(8))
    assert float(update.weight) == 8


@given(st.integers(1, 5), st.integers(1, 5))
def test_images_of_one_size_are_counted_as_their_maker_says(number, channels):
    images = [torch.full((channels, 2), float(index)) for index in range(number)]
    making = BatchOrigin(number)
    assert try_count_examples(images, making) == number
    if number != channels:
        parts = list(cut_batch(images, [1] * number, making=making))
        assert [float(image[0, 0]) for part in parts for image in part] == list(range(number))


def test_sizes_that_do_not_add_up_are_refused(make_learner):
    with pytest.raises(
        ts.BatchError, match=r"micro_batch=\[2, 2\] adds up to 4 examples, but the batch has 5"
    ):
        list(cut_batch(ROWS, [2, 2]))
    learner = make_learner(nn.Linear(2, 1))
    with pytest.raises(ts.BatchError, match="adds up to 9"):
        learner.update(lambda x: learner(x).squeeze(1), ROWS, micro_batch=[4, 5])


def test_a_list_of_another_length_is_refused():
    with pytest.raises(ts.BatchError, match=r"batch\[1\] is a list of 3 members"):
        list(cut_batch((ROWS, ["a", "b", "c"]), [2, 3]))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
def test_lists_that_happen_to_be_square_are_still_examples(lengths, data):
    """A ragged list beside labels: no lengths may turn it into columns."""
    batch = ([torch.arange(float(n)) for n in lengths], torch.arange(len(lengths)))
    size = data.draw(st.integers(1, len(lengths)))
    sizes = [size] * (len(lengths) // size) + ([len(lengths) % size] if len(lengths) % size else [])
    parts = list(cut_batch(batch, sizes))
    if len(lengths) > 1:
        assert lengths == [len(sequence) for part in parts for sequence in part[0]]


@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_sequences_train_the_same_in_parts(make_learner, enforce_sorted):
    lengths = [5, 4, 2, 1] if enforce_sorted else [2, 5, 1, 4]
    torch.manual_seed(0)
    padded = torch.randn(4, 5, 3, dtype=torch.float64)
    batch = pack_padded_sequence(
        padded, torch.tensor(lengths), batch_first=True, enforce_sorted=enforce_sorted
    )

    def train(micro_batch):
        torch.manual_seed(1)
        learner = make_learner(nn.GRU(3, 2, batch_first=True), precision="float64")

        def loss(part):
            outputs, sizes = pad_packed_sequence(learner(part)[0], batch_first=True)
            return outputs.sum((1, 2)) / sizes

        update = learner.update(loss, batch, micro_batch=micro_batch)
        return torch.cat([p.grad.reshape(-1) for p in learner.parameters()]), float(update.loss)

    whole = train(None)
    for micro_batch in (1, 3, [1, 2, 1]):
        gradient, loss = train(micro_batch)
        assert torch.allclose(whole[0], gradient, rtol=1e-12, atol=1e-15)
        assert whole[1] == pytest.approx(loss, rel=1e-13)


def test_time_major_batches_with_labels_train_the_same_in_parts(make_learner):
    torch.manual_seed(0)
    batch = {"x": torch.randn(7, 5, 3), "y": torch.randn(5), "scale": torch.tensor(2.0)}

    def train(micro_batch):
        torch.manual_seed(1)
        learner = make_learner(nn.RNN(3, 2).double(), precision="float64")
        loss = lambda b: (learner(b["x"].double())[0].sum((0, 2)) - b["scale"] * b["y"].double()).square()
        learner.update(loss, batch, micro_batch=micro_batch, split=1)
        return torch.cat([p.grad.reshape(-1) for p in learner.parameters()])

    assert torch.allclose(train(None), train(2), rtol=1e-12, atol=1e-14)
    assert torch.allclose(train(None), train([1, 4]), rtol=1e-12, atol=1e-14)
    with pytest.raises(
        ts.BatchError, match=r"differ along their dimension 1 \(batch\[0\]: 4, batch\[1\]: 5\)"
    ):
        list(cut_batch((torch.zeros(5, 4), torch.zeros(5)), [5], split_along(1)))


def test_graphs_train_the_same_in_parts(make_learner):
    torch.manual_seed(0)
    batch = Graphs(torch.randn(9, 3), torch.tensor([0, 0, 1, 1, 1, 1, 2, 3, 3]))

    def take(graphs, start, stop):
        chosen = (graphs.owner >= start) & (graphs.owner < stop)
        return Graphs(graphs.nodes[chosen], graphs.owner[chosen] - start)

    split = ts.Split(lambda graphs: int(graphs.owner.max()) + 1, take)

    def train(micro_batch):
        torch.manual_seed(1)
        learner = make_learner(nn.Linear(3, 1), precision="float64")

        def loss(graphs):
            scores = learner(graphs.nodes.double()).squeeze(1).tanh()
            return scores.new_zeros(int(graphs.owner.max()) + 1).index_add(0, graphs.owner, scores)

        learner.update(loss, batch, micro_batch=micro_batch, split=split)
        return learner.weight.grad

    assert torch.allclose(train(None), train(1), rtol=1e-12, atol=1e-15)
    empty = ts.Split(lambda _: 0, take)
    learner = make_learner(nn.Linear(3, 1))
    for micro_batch in (None, 1, "auto"):
        with pytest.raises(EmptyBatchError, match="no examples"):
            learner.update(lambda g: learner(g.nodes), batch, split=empty, micro_batch=micro_batch)


def test_moving_goes_into_everything_and_copies_nothing_that_is_there():
    device = torch.device("cpu")
    batch = {"a": (ROWS, [ROWS, "text"]), "b": Record(ROWS), "p": KINDS["packed"][0], "n": np.ones(2)}
    moved = batch_to_device(batch, device)
    assert moved["a"][0] is ROWS
    assert moved["a"][1][0] is ROWS
    assert moved["b"].x is ROWS
    meta = batch_to_device(batch, torch.device("meta"))
    assert {meta["a"][0].device.type, meta["a"][1][0].device.type, meta["b"].x.device.type} == {"meta"}
    assert meta["p"].data.device.type == "meta"
    assert (meta["a"][1][1], meta["b"].note, meta["b"].made) == ("text", "kept", 3)
