# SPDX-License-Identifier: Apache-2.0
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Denoiser(nn.Module):
    def __init__(self, width=32, steps=20):
        super().__init__()
        self.steps = steps
        self.time = nn.Embedding(steps, width)
        self.inner = nn.Linear(2, width)
        self.dropout = nn.Dropout(0.1)
        self.outer = nn.Linear(width, 2)
        betas = torch.linspace(1e-3, 0.2, steps)
        self.register_buffer("betas", betas)
        self.register_buffer("kept", (1 - betas).cumprod(0))

    def forward(self, x, t):
        return self.outer(self.dropout(F.silu(self.inner(x) + self.time(t))))

    def loss(self, x):
        t = torch.randint(0, self.steps, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        kept = self.kept[t].unsqueeze(1)
        return F.mse_loss(self(kept.sqrt() * x + (1 - kept).sqrt() * noise, t), noise)

    @torch.no_grad()
    def sample(self, count):
        was_training = self.training
        self.eval()
        x = torch.randn(count, 2)
        for step in reversed(range(self.steps)):
            t = torch.full((count,), step)
            beta, kept = self.betas[step], self.kept[step]
            x = (x - beta / (1 - kept).sqrt() * self(x, t)) / (1 - beta).sqrt()
            if step > 0:
                x = x + beta.sqrt() * torch.randn_like(x)
        self.train(was_training)
        return x


model = Denoiser()
ema = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(60):
    model.train()
    loss = model.loss(torch.randn(32, 2) * 0.5 + 1)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(ema.parameters(), model.parameters(), strict=True):
            slow.lerp_(fast, 0.05)
    if step % 20 == 19:
        print(step, loss.item(), model.sample(16).mean(0), ema.sample(16).mean(0))
