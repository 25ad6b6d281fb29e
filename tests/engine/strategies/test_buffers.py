# SPDX-License-Identifier: Apache-2.0
"""Numbers by which ranks see whether their buffers are alike: small buffers' are computed together, and are the same numbers."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from truestep.engine.strategies import buffers

SHAPES = [(), (1,), (0,), (3, 4), (64,), (65,), (2, 0, 3), (5, 1, 2)]
KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8]


class Calls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function, types, given=(), options=None):
        self.number += 1
        return function(*given, **(options or {}))


def some_buffers():
    torch.manual_seed(0)
    found = [(torch.randn(shape) * 100).to(kind) for kind in KINDS for shape in SHAPES]
    found += [torch.randn(shape) > 0 for shape in SHAPES] + [
        torch.randn(shape).to(torch.complex64) for shape in SHAPES
    ]
    return [
        *found,
        torch.arange(12.0).view(3, 4).t(),
        torch.tensor([math.nan, -0.0, 0.0]),
        torch.randn(4, 8)[:, ::2],
    ]


@pytest.mark.parametrize("at_once", [buffers._AT_ONCE, 4 * buffers._SMALL])
def test_the_numbers_are_those_of_each_buffer_alone(monkeypatch, at_once):
    given = some_buffers()
    expected = [int(buffers._tensor_digest(each)) for each in given]
    monkeypatch.setattr(buffers, "_AT_ONCE", at_once)  # in few pieces, and in many
    assert buffers._tensor_digests(given) == expected


def test_a_small_buffer_takes_a_call_or_two():
    found = []
    for number in (10, 1010):
        given = [torch.randn(3) for _ in range(number)]
        with Calls() as calls:
            buffers._tensor_digests(given)
        found.append(calls.number)
    assert found[1] - found[0] <= 2 * 1000
