# SPDX-License-Identifier: Apache-2.0
"""Where the examples of a batch lie, and batches made of them in another way."""

import collections
import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.doctor.relations.examples import UnclearExamplesError, find_examples


class Pair(NamedTuple):
    image: object
    target: object


@dataclasses.dataclass
class Record:
    inputs: object
    more: object


class LikeTensorDict:
    """A mapping that is indexed by rows, and knows the size of its batch."""

    def __init__(self, fields, batch_size):
        self.fields, self.batch_size = dict(fields), torch.Size(batch_size)

    def keys(self):
        return self.fields.keys()

    def items(self):
        return self.fields.items()

    def __getitem__(self, key):
        return self.fields[key]


class LikeBatchEncoding(collections.UserDict):
    """A mapping as tokenizers give it."""


def leaf(count):
    """Return strategies of leaves that tell their rows: row i holds i, whatever else."""
    column = torch.arange(count)
    return st.sampled_from(
        [
            column,
            column.float(),
            column.unsqueeze(1).repeat(1, 3),
            column.reshape(count, 1, 1).expand(count, 2, 4) * 1.0,
            column.numpy(),
            column.numpy().astype(np.float32)[:, None],
            [f"row {row}" for row in range(count)],
            list(range(count)),
        ]
    )


def shared():
    return st.sampled_from([0.5, "train", None, torch.tensor(2.0), 7])


def nest(children):
    names = st.lists(st.text("abc", min_size=1, max_size=3), min_size=2, max_size=2, unique=True)
    two = st.tuples(children, children)
    return st.one_of(
        two,
        two.map(lambda pair: Pair(*pair)),
        two.map(lambda pair: Record(*pair)),
        st.tuples(names, two).map(lambda drawn: dict(zip(*drawn, strict=True))),
        st.tuples(names, two).map(lambda drawn: LikeBatchEncoding(zip(*drawn, strict=True))),
    )


@st.composite
def batches(draw):
    count = draw(st.integers(3, 9))  # pairs of shared values are no list of examples
    sure = torch.arange(count).float()  # two tensors that agree, so that it can be told
    rest = draw(st.recursive(st.one_of(leaf(count), shared()), nest, max_leaves=5))
    return count, {"first": sure, "second": sure.clone().unsqueeze(1), "rest": rest}


def rows_of(examples):
    """Return the example that each row of each leaf is of."""
    for name in examples.items:
        value = examples.leaves[name]
        if isinstance(value, list):
            yield [int(str(each).split()[-1]) for each in value]
        else:
            yield torch.as_tensor(value).reshape(len(value), -1)[:, 0].long().tolist()


@given(batches())
@settings(max_examples=40, deadline=None)
def test_every_leaf_of_any_nesting_takes_the_same_rows(drawn):
    count, batch = drawn
    examples = find_examples(batch)
    assert examples.count == count
    first, second = examples.halves()
    half, rest = count // 2, list(range(2 * (count // 2), count))
    expected = {
        tuple(range(count)): examples.fresh(),
        tuple(examples.order()): examples.permuted(),
        (*range(count), *range(count)): examples.twice(),
        (*range(half), *range(half), *rest): first,
        (*range(half, 2 * half), *range(half, 2 * half), *rest): second,
        (1, *range(1, count)): examples.with_changed(0),
    }
    for rows, made in expected.items():
        again = find_examples(made)
        assert again.count == len(rows)
        assert type(made["rest"]) is type(batch["rest"])
        assert all(found == list(rows) for found in rows_of(again))
    assert sorted(examples.order()) == list(range(count))
    assert all(place != row for place, row in enumerate(examples.order()))


@given(batches())
@settings(max_examples=20, deadline=None)
def test_one_item_is_altered_alone_and_the_batch_is_never_written_to(drawn):
    count, batch = drawn
    examples = find_examples(batch)
    before = [list(each) for each in rows_of(examples)]
    for place, name in enumerate(examples.items):
        altered = list(rows_of(find_examples(examples.constant(name))))
        assert altered[place] == [0] * count
        assert altered[:place] + altered[place + 1 :] == before[:place] + before[place + 1 :]
    for made in (examples.fresh(), examples.permuted()):
        for each in find_examples(made).leaves.values():
            if isinstance(each, torch.Tensor):
                each.fill_(99)
            elif isinstance(each, np.ndarray):
                each[...] = 99
    assert [list(each) for each in rows_of(find_examples(batch))] == before


def test_a_mapping_that_is_indexed_by_rows_is_made_anew():
    batch = LikeTensorDict({"x": torch.arange(4), "y": torch.arange(4.0)}, [4])
    made = find_examples(batch).twice()
    assert type(made) is LikeTensorDict
    assert made.batch_size == (8,)


def test_sequences_first_lie_along_dimension_1():
    examples = find_examples((torch.zeros(5, 3), torch.arange(3)), dim=1)
    assert (examples.count, dict(examples.axes)) == (3, {"[0]": 1, "[1]": 0})


x, y = torch.randn(6, 8), torch.arange(6)


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ([x, y], 6),
        ({"x": x, "y": y, "weights": torch.ones(3)}, 6),
        ({"boxes": [torch.zeros(row + 1, 4) for row in range(6)], "y": y}, 6),
        ([(torch.zeros(row + 3), row) for row in range(5)], 5),
        (([torch.zeros(3, 8, 8)] * 2, [{"boxes": torch.zeros(4, 4)}] * 2), 2),
        ([("a", "b", "c"), torch.ones(3)], 3),
    ],
)
def test_lists_are_columns_or_examples_as_their_members_say(batch, count):
    assert find_examples(batch).count == count


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((x, torch.arange(12)), "do not agree"),
        ((torch.zeros(37, 2), y), "do not agree"),
        ((x, y, torch.zeros(37)), "do not agree"),
        ([x, x.clone()], "two ways"),
        ([torch.zeros(8) for _ in range(4)], "two ways"),
        ((x.to_sparse(), y), "sparse"),
        ((x, y, object()), "object"),
        (0.5, "no tensor"),
        ((torch.tensor(1.0), "a"), "no tensor"),
    ],
)
def test_what_cannot_be_told_is_refused_with_its_reason(batch, words):
    with pytest.raises(UnclearExamplesError, match=words):
        find_examples(batch)


def test_what_made_the_lists_decides():
    assert find_examples([x, x.clone()], in_columns=True).count == 6
