# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2), nn.Tanh())
discriminator = nn.Sequential(
    nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(16, 1), nn.Sigmoid()
)
criterion = nn.BCELoss()
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
for step in range(25):
    real = torch.randn(32, 2) * 0.3
    valid, invalid = torch.ones(32, 1), torch.zeros(32, 1)
    opt_g.zero_grad()
    fake = generator(torch.randn(32, 8))
    g_loss = criterion(discriminator(fake), valid)
    g_loss.backward()
    opt_g.step()
    opt_d.zero_grad()
    d_loss = (criterion(discriminator(real), valid) + criterion(discriminator(fake.detach()), invalid)) / 2
    d_loss.backward()
    opt_d.step()
    if step % 10 == 0:
        generator.eval()
        with torch.no_grad():
            generator(torch.randn(4, 8))
        generator.train()
