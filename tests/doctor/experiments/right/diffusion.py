# SPDX-License-Identifier: Apache-2.0
"""A diffusion model of points: random times and noise, weights averaged, a validation loss with its own seeds."""

import copy
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
STEPS = 50
betas = torch.linspace(1e-4, 0.2, STEPS)
alphas = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 32), nn.SiLU())
        self.enter = nn.Linear(2, 32)
        self.block = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.SiLU(), nn.Dropout(0.1))
        self.leave = nn.Linear(32, 2)

    def forward(self, x, t):
        waves = t[:, None].float() * torch.exp(-math.log(100) * torch.arange(4) / 4)
        hidden = self.enter(x) + self.time(torch.cat([waves.sin(), waves.cos()], 1))
        return self.leave(hidden + self.block(hidden))


def loss_of(net, x, t, noise):
    level = alphas[t][:, None]
    return (net(level.sqrt() * x + (1 - level).sqrt() * noise, t) - noise).square().mean()


def ring(count):
    angles = torch.rand(count) * 2 * math.pi
    return torch.stack([angles.cos(), angles.sin()], 1)


loader = DataLoader(TensorDataset(ring(640)), batch_size=32, shuffle=True)
held = DataLoader(TensorDataset(ring(120)), batch_size=30)
net = Denoiser()
average = copy.deepcopy(net).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)

for epoch in range(3):
    net.train()
    for (x,) in loader:
        t = torch.randint(0, STEPS, (x.shape[0],))
        loss = loss_of(net, x, t, torch.randn_like(x))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for mean, each in zip(average.parameters(), net.parameters(), strict=True):
                mean.lerp_(each, 0.05)
    total, generator = 0.0, torch.Generator().manual_seed(1)
    with torch.no_grad():
        for (x,) in held:
            t = torch.randint(0, STEPS, (x.shape[0],), generator=generator)
            total += loss_of(average, x, t, torch.randn(x.shape, generator=generator)).item() * len(x)
    print(f"epoch {epoch}: validation loss {total / 120:.4f}")
