# SPDX-License-Identifier: Apache-2.0
"""WGAN_GP with its penalty around a small generator and discriminator, on made-up pictures."""

import sys

import torch
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, "sourcecode")
bare_packages("MSG_GAN")
sys.modules["MSG_GAN"].__path__ = ["sourcecode/MSG_GAN"]
from MSG_GAN.Losses import WGAN_GP

torch.manual_seed(0)
pictures = torch.rand(480, 1, 1, 1) * torch.ones(480, 3, 8, 8) + 0.1 * torch.randn(480, 3, 8, 8)
loader = DataLoader(TensorDataset(pictures), batch_size=16, shuffle=True, drop_last=True)
generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 192), nn.Unflatten(1, (3, 8, 8)))
discriminator = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256, 1))
criterion = WGAN_GP(discriminator, use_gp=True)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.99))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.0, 0.99))

for epoch in range(3):
    for (real,) in loader:
        fake = generator(torch.randn(16, 8)).detach()
        loss_of_discriminator = criterion.dis_loss(real, fake)
        of_discriminator.zero_grad()
        loss_of_discriminator.backward()
        of_discriminator.step()
        loss_of_generator = criterion.gen_loss(real, generator(torch.randn(16, 8)))
        of_generator.zero_grad()
        loss_of_generator.backward()
        of_generator.step()
    print(f"epoch {epoch} d {loss_of_discriminator.item():.4f} g {loss_of_generator.item():.4f}")
