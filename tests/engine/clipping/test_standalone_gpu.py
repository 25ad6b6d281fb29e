# SPDX-License-Identifier: Apache-2.0
"""Clipping gradients that are on several devices."""

import pytest
import torch
from torch import nn

import truestep as ts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KINDS = {"norm": ts.ClipNorm(0.5), "value": ts.ClipValue(0.1), "adaptive": ts.ClipAdaptive(0.01)}


def leaves(seed):
    draw = torch.Generator().manual_seed(seed)
    parameters = [nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((4, 3), (5,))]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=draw)
    return parameters


@pytest.mark.parametrize("clip", KINDS.values(), ids=KINDS)
def test_gradients_on_two_devices_are_clipped_by_the_norm_of_all(clip):
    here, there, single = leaves(0), leaves(1), leaves(0) + leaves(1)
    moved = [nn.Parameter(p.detach().cuda()) for p in there]
    for parameter, old in zip(moved, there, strict=True):
        parameter.grad = old.grad.cuda()
    expected = ts.clip_gradients(single, clip)
    torch.testing.assert_close(ts.clip_gradients([*here, *moved], clip), expected)
    for got, true in zip([*here, *moved], single, strict=True):
        torch.testing.assert_close(got.grad.cpu(), true.grad)
