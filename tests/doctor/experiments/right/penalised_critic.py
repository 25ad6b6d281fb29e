# SPDX-License-Identifier: Apache-2.0
"""WGAN-GP: five critic steps for one of the generator, a penalty on mixed points, noise drawn in each."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
c_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
loader = DataLoader(TensorDataset(torch.randn(640, 2) * 0.3 + 1), batch_size=32, shuffle=True, drop_last=True)


def penalty(real, fake):
    share = torch.rand(len(real), 1)
    mixed = (share * real + (1 - share) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return (slope.norm(2, dim=1) - 1).square().mean()


step = 0
for epoch in range(4):
    for (real,) in loader:
        fake = generator(torch.randn(len(real), 4)).detach()
        c_loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
        c_optimizer.zero_grad()
        c_loss.backward()
        c_optimizer.step()
        step += 1
        if step % 5 == 0:
            g_loss = -critic(generator(torch.randn(len(real), 4))).mean()
            g_optimizer.zero_grad()
            g_loss.backward()
            g_optimizer.step()
    with torch.no_grad():
        distance = critic(real).mean() - critic(generator(torch.randn(32, 4))).mean()
    print(f"epoch {epoch}: critic {c_loss.item():.4f} distance {distance.item():.4f}")
