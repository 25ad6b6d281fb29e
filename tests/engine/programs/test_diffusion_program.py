# SPDX-License-Identifier: Apache-2.0
"""DDPM with EMA (Ho et al., 2020), beside the loop by hand that is given the same noise and time steps."""

import math

import pytest
import torch
from torch import nn

import truestep as ts

STEPS, TIMES, DECAY, SIZE = 20, 50, 0.9, 12
KEPT = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES, dtype=torch.float64), 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.time = nn.Embedding(TIMES, 8)
        self.layers = nn.Sequential(nn.Linear(10, 24), nn.SiLU(), nn.Linear(24, 2))

    def forward(self, x, t):
        return self.layers(torch.cat([x, self.time(t)], 1))


def batches(dtype):
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(SIZE, 2, generator=draw).to(dtype) for _ in range(STEPS)]


def losses(network, images, noise, t):
    kept = KEPT[t].to(images.dtype)[:, None]
    return (network(kept.sqrt() * images + (1 - kept).sqrt() * noise, t) - noise).square().mean(1)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True)


def train(make_learner, make_context, dtype, micro_batch):
    """Return the learner, and the noise and time steps that it drew in each update."""
    context = make_context(seed=11)
    net = make_learner(
        Denoiser().to(dtype),
        sgd,
        context,
        precision=str(dtype).removeprefix("torch."),
        ema=ts.EMA(decay=DECAY),
    )
    drawn = []

    def loss(images):
        noise = ts.randn(images.shape, dtype=images.dtype)
        t = (ts.rand(len(images)) * TIMES).long()
        drawn[-1].append((noise, t))
        return losses(net, images, noise, t)

    for step, images in enumerate(batches(dtype)):
        context.advance(step)
        drawn.append([])
        net.update(loss, images, micro_batch=micro_batch)
    return net, [tuple(map(torch.cat, zip(*parts, strict=True))) for parts in drawn]


def by_hand(dtype, drawn):
    module = Denoiser().to(dtype)
    optimizer = sgd(module.parameters())
    average = [p.detach().clone() for p in module.parameters()]
    for number, (images, (noise, t)) in enumerate(zip(batches(dtype), drawn, strict=True), start=1):
        optimizer.zero_grad()
        losses(module, images, noise, t).mean().backward()
        optimizer.step()
        decay = min(DECAY, (1 + number) / (10 + number))
        average = [
            decay * a + (1 - decay) * p.detach() for a, p in zip(average, module.parameters(), strict=True)
        ]
    return module, average


def vector(tensors):
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors])


def test_unsplit_it_ends_with_the_bits_of_the_loop_by_hand(make_learner, make_context):
    net, drawn = train(make_learner, make_context, torch.float32, None)
    module, average = by_hand(torch.float32, drawn)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), module.parameters(), strict=True))
    with net.averaged() as averaged:
        torch.testing.assert_close(vector(averaged.parameters()), vector(average), rtol=1e-5, atol=1e-6)
    assert len({tuple(t.tolist()) for _, t in drawn}) == STEPS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("micro_batch", [1, 5, [7, 1, 4]])
def test_split_it_draws_the_same_and_keeps_the_law(make_learner, make_context, dtype, micro_batch):
    whole, drawn = train(make_learner, make_context, dtype, None)
    parts, drawn_in_parts = train(make_learner, make_context, dtype, micro_batch)
    for (noise, t), (same_noise, same_t) in zip(drawn, drawn_in_parts, strict=True):
        assert torch.equal(noise, same_noise)
        assert torch.equal(t, same_t)
    reference = vector(by_hand(torch.float64, [(noise.double(), t) for noise, t in drawn])[0].parameters())
    unit = torch.finfo(dtype).eps / 2
    unsplit = (vector(whole.parameters()) - reference).norm()
    assert (vector(parts.parameters()) - reference).norm() <= 4 * max(unsplit, unit * reference.norm())
    assert unsplit <= 1e4 * unit * reference.norm()
    assert math.isfinite(float(unsplit))
