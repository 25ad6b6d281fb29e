# SPDX-License-Identifier: Apache-2.0
"""What ranks send each other arrives as it was: types, keys, shapes and bits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truestep.engine.processes.packing import pack_rank_message, unpack_rank_message

DTYPES = [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64, torch.float64, torch.uint8]


@st.composite
def drawn_tensor(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    tensor = (torch.randn(shape) * 3).to(draw(st.sampled_from(DTYPES)))
    return tensor.t() if tensor.dim() == 2 else tensor.conj() if tensor.is_complex() else tensor


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | drawn_tensor()
WORDS = st.sampled_from(["tensor", "list", "tuple", "lists of plain", "tuples of plain", "a"])
TREES = st.recursive(
    LEAVES | WORDS,
    lambda tree: (
        st.lists(tree, max_size=4)
        | st.lists(tree, max_size=4).map(tuple)
        | st.dictionaries(WORDS | st.text(), tree, max_size=3)
        | st.dictionaries(st.integers(), tree, max_size=2)
        | st.lists(st.integers(), max_size=5)
    ),
    max_leaves=12,
)


def alike(one, other):
    if isinstance(one, torch.Tensor):
        same_kind = one.dtype == other.dtype and one.shape == other.shape
        return same_kind and torch.equal(one.resolve_conj().nan_to_num(), other.resolve_conj().nan_to_num())
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(alike, one.values(), other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@given(TREES)
def test_a_tree_arrives_as_it_was(tree):
    assert alike(tree, unpack_rank_message(pack_rank_message(tree)))


@pytest.mark.parametrize("other", [torch.eye(3).to_sparse(), {1: torch.ones(2)}, b"bytes"])
def test_what_json_does_not_tell_arrives_too(other):
    found = unpack_rank_message(pack_rank_message([other]))[0]
    if isinstance(other, torch.Tensor):
        assert torch.equal(found.to_dense(), other.to_dense())
    elif isinstance(other, dict):
        assert torch.equal(found[1], other[1])
    else:
        assert found == other
