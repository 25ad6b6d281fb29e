# SPDX-License-Identifier: Apache-2.0
"""Many tensors that a worker sends travel as one, and arrive as they were."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truestep.core.os_specific import open_descriptors
from truestep.engine.data import DataOptions, open_source
from truestep.engine.data.packed_tensors import MANY, PackedBatch, pack_batch, unpack_batch

DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128),
    *(torch.bool, torch.uint8, torch.int16, torch.int64, torch.float8_e4m3fn),
)
MASK = torch.arange(64.0)


def tensor(dtype, shape, seed):
    bits = torch.Generator().manual_seed(seed)
    size = torch.empty(0, dtype=dtype).itemsize
    raw = torch.randint(
        0, 2 if dtype is torch.bool else 256, (*shape, size), generator=bits, dtype=torch.uint8
    )
    return raw.view(dtype).reshape(shape)


TENSORS = st.builds(
    tensor, st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3).map(tuple), st.integers(0, 9)
)
OTHERS = st.one_of(
    *(st.integers(), st.text(max_size=3), st.none()),
    st.sampled_from(
        [
            torch.ones(2, 3).T,
            torch.ones(1).expand(5),
            torch.ones(2, requires_grad=True),
            torch.nn.Parameter(MASK),
        ]
    ),
    st.sampled_from(
        [
            np.arange(3),
            torch.eye(3).to_sparse(),
            torch.tensor([1j]).conj(),
            MASK[::2],
            MASK[:3],
            MASK[2:5],
            MASK,
        ]
    ),
)


class Pair(NamedTuple):
    x: object
    y: object


LEAVES = st.lists(TENSORS | OTHERS, max_size=6)


def containers(inner):
    return (
        inner
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    )


BATCHES = st.recursive(LEAVES, containers, max_leaves=9)


def form(value):
    """Return what a value is, to the bit, and in which containers."""
    if isinstance(value, torch.Tensor):
        kind = type(value), value.dtype, value.shape, value.layout, value.requires_grad, value.is_conj()
        bits = (
            value.detach().to_dense().resolve_conj().contiguous().flatten().view(torch.uint8).tolist()
            if value.numel()
            else []
        )
        return *kind, bits
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return dict, [(name, form(each)) for name, each in value.items()]
    return (type(value), [form(each) for each in value]) if isinstance(value, (list, tuple)) else value


@given(BATCHES, st.integers(0, 40))
def test_what_arrives_is_what_was_sent(batch, number):
    batch = [batch, [torch.full((2,), each) for each in range(number)]]
    packed = pack_batch(batch)
    assert number < MANY or isinstance(packed, PackedBatch) or MASK.data_ptr() in pointers(batch)
    arrived = unpack_batch(packed) if isinstance(packed, PackedBatch) else packed
    assert form(arrived) == form(batch)


def pointers(value):
    if isinstance(value, torch.Tensor):
        return {value.data_ptr()} if value.layout is torch.strided else set()
    if isinstance(value, (list, tuple, dict)):
        return set().union(*map(pointers, value.values() if isinstance(value, dict) else value))
    return set()


def test_what_stood_there_twice_is_one_again_and_what_shared_elements_does():
    many = [torch.full((2,), float(each)) for each in range(MANY)]
    twice = unpack_batch(pack_batch([*many, many[0]]))
    assert twice[0] is twice[-1]
    sharing = [*many, many[0][:1]]
    assert pack_batch(sharing) is sharing
    assert pack_batch(many[1:]) == many[1:], "few travel as they are"


class Detections:
    """Samples of many tensors, each of its own size, that no stacking makes one."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return {f"boxes {each}": torch.full((1 + (index + each) % 3, 4), float(index)) for each in range(10)}


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_batch_of_many_tensors_needs_few_open_files(num_workers):
    options = DataOptions(batch_size=8, collate=list, check=False)
    whole = list(open_source(Detections(), options, seed=0).batches(0))
    source = open_source(
        Detections(), DataOptions(batch_size=8, collate=list, check=False, num_workers=num_workers), seed=0
    )
    before = len(open_descriptors())
    found = list(source.batches(0))  # 240 tensors
    assert form(found) == form(whole)
    assert len(open_descriptors()) - before < 20 * num_workers
    source.close()
