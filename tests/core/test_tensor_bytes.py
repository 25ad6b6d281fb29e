# SPDX-License-Identifier: Apache-2.0
"""A tensor's bytes are those of its values, however it lies in memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.checkpoints.state_diff import _bytes_per_element
from truestep.checkpoints.tensor_memory_view import tensor_memoryview
from truestep.core.tensor_bytes import bytes_of_contiguous
from truestep.engine.data.batch_digest import digest_batch
from truestep.engine.data.columns import column_to_bytes

DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64]


@st.composite
def tensors(draw):
    """A view into a larger tensor: some rows, some steps, some dimensions exchanged; often of one element."""
    shape = draw(st.lists(st.integers(1, 4), max_size=3))
    steps = [draw(st.integers(1, 3)) for _ in shape]
    whole = torch.arange(
        torch.Size([size * step + 2 for size, step in zip(shape, steps, strict=True)]).numel()
    )
    whole = whole.reshape([size * step + 2 for size, step in zip(shape, steps, strict=True)])
    whole = whole.remainder(100).to(draw(st.sampled_from(DTYPES)))
    index = tuple(slice(1, 1 + size * step, step) for size, step in zip(shape, steps, strict=True))
    view = whole[index]
    return view.permute(draw(st.permutations(range(view.ndim)))) if view.ndim else view


@settings(max_examples=150)
@given(tensors())
def test_the_bytes_are_those_of_a_copy(tensor):
    copy = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    expected = bytes(copy.reshape(-1).view(torch.uint8).tolist())
    assert bytes(bytes_of_contiguous(tensor.contiguous()).tolist()) == expected
    assert bytes(tensor_memoryview(tensor.contiguous())) == expected
    assert column_to_bytes(tensor) == expected
    assert digest_batch(tensor) == digest_batch(tensor[...])
    assert _bytes_per_element(tensor).tolist() == _bytes_per_element(copy).tolist()


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_nothing_has_no_bytes(shape):
    assert tensor_memoryview(torch.zeros(4, 6)[: shape[0]].reshape(-1)[:0].reshape(shape)).nbytes == 0


def test_the_bytes_are_no_copy():
    tensor = torch.zeros(4, 2)[1:2, ::2]
    bytes_of_contiguous(tensor).fill_(0xFF)
    assert tensor.isnan().all()
