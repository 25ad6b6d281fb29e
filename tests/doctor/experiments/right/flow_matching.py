# SPDX-License-Identifier: Apache-2.0
"""Flow matching: a velocity is learned at random times between noise and data, and an average of the weights is kept."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class VelocityNet(nn.Module):
    def __init__(self, dim=2, hidden=32):
        super().__init__()
        self.freqs = nn.Parameter(torch.randn(8) * 3, requires_grad=False)
        self.net = nn.Sequential(
            nn.Linear(dim + 16, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, dim),
        )

    def forward(self, x, t):
        angles = t[:, None] * self.freqs[None]
        return self.net(torch.cat([x, angles.sin(), angles.cos()], dim=-1))


@torch.no_grad()
def sample(model, n, steps=10):
    x = torch.randn(n, 2)
    for k in range(steps):
        x = x + model(x, torch.full((n,), k / steps)) / steps
    return x


data = torch.cat([torch.randn(100, 2) * 0.2 + 2, torch.randn(100, 2) * 0.2 - 2])
loader = DataLoader(TensorDataset(data), batch_size=20, shuffle=True)
model = VelocityNet()
ema = copy.deepcopy(model).eval()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4 * len(loader))
for epoch in range(4):
    running = 0.0
    for (x1,) in loader:
        x0 = torch.randn_like(x1)
        t = torch.rand(len(x1))
        xt = (1 - t[:, None]) * x0 + t[:, None] * x1
        loss = ((model(xt, t) - (x1 - x0)) ** 2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        with torch.no_grad():
            for a, b in zip(ema.parameters(), model.parameters(), strict=True):
                a.lerp_(b, 0.05)
        running += loss.item() * len(x1)
    print(
        f"epoch {epoch}  loss {running / len(data):.4f}  mean of samples {sample(ema, 50).mean().item():.3f}"
    )
