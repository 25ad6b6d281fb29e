# SPDX-License-Identifier: Apache-2.0
"""Noise that a function given as clip= adds to the gradients: the update's own, however its batch is split."""

import pytest
import torch
from torch import nn

import truestep as ts

ROWS = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def with_torch(gradients):
    for gradient in gradients.values():
        gradient.add_(torch.randn_like(gradient))


def with_keyed_draws(gradients):
    for gradient in gradients.values():
        gradient.add_(ts.randn(gradient.shape, dtype=gradient.dtype))


class Noisy(ts.Clip):
    def apply(self, gradients, norm):
        for gradient in gradients.tensors:
            gradient.add_(torch.randn_like(gradient))


def trained(folder, clip, micro_batch):
    torch.manual_seed(0)
    with ts.Run(folder, seed=0, device="cpu", progress=False, precision="float64") as run:
        net = run.learner(nn.Linear(3, 1).double(), lambda p: torch.optim.SGD(p, lr=0.1), clip=clip)
        for _ in run.steps(2):
            net.update(lambda rows: net(rows)[:, 0].square(), ROWS, micro_batch=micro_batch)
        return torch.cat([each.detach().flatten() for each in net.module.parameters()])


@pytest.mark.parametrize("clip", [with_torch, with_keyed_draws, Noisy()], ids=["torch", "ts", "class"])
def test_noise_of_a_clip_is_the_same_for_each_split(tmp_path, capsys, clip):
    whole = trained(tmp_path / "whole", clip, None)
    for size in (3, 5):
        torch.testing.assert_close(trained(tmp_path / str(size), clip, size), whole, rtol=1e-12, atol=1e-12)
    assert "draws random numbers for itself" not in capsys.readouterr().err
