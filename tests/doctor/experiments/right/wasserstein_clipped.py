# SPDX-License-Identifier: Apache-2.0
"""A Wasserstein GAN whose critic is trained five times for each step of the generator, with clipped weights."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
LATENT, N_CRITIC, CLIP = 8, 5, 0.01
angles = 6.28 * torch.rand(256)
points = torch.stack([angles.cos(), angles.sin()], dim=1) + 0.05 * torch.randn(256, 2)
dataloader = DataLoader(TensorDataset(points), batch_size=16, shuffle=True, drop_last=True)

generator = nn.Sequential(nn.Linear(LATENT, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
optimizer_D = torch.optim.RMSprop(critic.parameters(), lr=5e-5)

batches_done = 0
for epoch in range(3):
    for i, (real,) in enumerate(dataloader):
        optimizer_D.zero_grad()
        z = torch.randn(real.shape[0], LATENT)
        fake = generator(z).detach()
        loss_D = -torch.mean(critic(real)) + torch.mean(critic(fake))
        loss_D.backward()
        optimizer_D.step()
        for p in critic.parameters():
            p.data.clamp_(-CLIP, CLIP)

        if i % N_CRITIC == 0:
            optimizer_G.zero_grad()
            loss_G = -torch.mean(critic(generator(z)))
            loss_G.backward()
            optimizer_G.step()
            print(f"[{epoch}] [{batches_done}] D {loss_D.item():.5f} G {loss_G.item():.5f}")
        batches_done += 1
