# SPDX-License-Identifier: Apache-2.0
"""A GAN of small images: two optimizers, labels smoothed on one side, the generator judged by fresh noise."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images = torch.rand(320, 1, 8, 8) * torch.linspace(0, 1, 8)
loader = DataLoader(TensorDataset(images * 2 - 1), batch_size=16, shuffle=True, drop_last=True)

generator = nn.Sequential(
    nn.ConvTranspose2d(12, 16, 4),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.ConvTranspose2d(16, 1, 4, 2, 1),
    nn.Tanh(),
)
discriminator = nn.Sequential(
    nn.Conv2d(1, 16, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(16, 32, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Flatten(),
    nn.Linear(128, 1),
)
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed = torch.randn(4, 12, 1, 1)

for epoch in range(3):
    d_total = g_total = 0.0
    for (real,) in loader:
        noise = torch.randn(real.shape[0], 12, 1, 1)
        fake = generator(noise)
        real_logits, fake_logits = discriminator(real), discriminator(fake.detach())
        d_loss = F.binary_cross_entropy_with_logits(real_logits, torch.full_like(real_logits, 0.9))
        d_loss = d_loss + F.binary_cross_entropy_with_logits(fake_logits, torch.zeros_like(fake_logits))
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()

        logits = discriminator(fake)
        g_loss = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        d_total += d_loss.item()
        g_total += g_loss.item()
    generator.eval()
    with torch.no_grad():
        samples = generator(fixed)
    generator.train()
    print(
        f"epoch {epoch}: d {d_total / len(loader):.4f} g {g_total / len(loader):.4f} brightness {samples.mean().item():.4f}"
    )
