# SPDX-License-Identifier: Apache-2.0
"""NLayerDiscriminator with GANLoss, least squares, on made-up pictures and those of a small generator."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("models")
stand_ins("models.posenet", "torchvision", "models.googlenet")
from models.networks import GANLoss, NLayerDiscriminator

torch.manual_seed(0)
pictures = torch.rand(320, 1, 1, 1) * torch.ones(320, 3, 16, 16) + 0.1 * torch.randn(320, 3, 16, 16)
generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 768), nn.Unflatten(1, (3, 16, 16)))
discriminator = NLayerDiscriminator(3, ndf=8, n_layers=2, use_sigmoid=False)
criterion = GANLoss(use_lsgan=True)
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
for epoch in range(3):
    for (real,) in DataLoader(TensorDataset(pictures), batch_size=16, shuffle=True):
        fake = generator(torch.randn(16, 8))
        of_discriminator.zero_grad()
        loss_d = 0.5 * (criterion(discriminator(real), True) + criterion(discriminator(fake.detach()), False))
        loss_d.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        loss_g = criterion(discriminator(fake), True)
        loss_g.backward()
        of_generator.step()
    print(f"epoch {epoch} d {loss_d.item():.4f} g {loss_g.item():.4f}")
