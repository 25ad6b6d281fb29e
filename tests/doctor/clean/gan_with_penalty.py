# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))


def penalty(real, fake):
    share = torch.rand(real.shape[0], 1)
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    (gradients,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return 10 * (gradients.norm(2, dim=1) - 1).square().mean()


for _step in range(12):
    for _ in range(5):
        real = torch.randn(32, 2) + 3
        fake = generator(torch.randn(32, 8)).detach()
        loss_c = critic(fake).mean() - critic(real).mean() + penalty(real, fake)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    loss_g = -critic(generator(torch.randn(32, 8))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
