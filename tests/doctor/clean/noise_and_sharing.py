# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Noise(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x + self.scale * torch.randn_like(x) if self.training else x


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(F.gelu(self.inner(self.norm(x))))


class Universal(nn.Module):
    """One block, applied four times; one norm over both of its inputs."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.noise = Noise(0.1)
        self.block = Block(16)
        self.head = nn.Linear(16, 3)

    def features(self, x):
        return self.norm(self.noise(self.embed(x)))

    def forward(self, first, second):
        x = self.features(first) - self.features(second)
        for _ in range(4):
            x = self.block(x)
        return self.head(x)


net = Universal()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
first, second, y = torch.randn(96, 6), torch.randn(96, 6), torch.randint(3, (96,))
for step in range(40):
    rows = torch.randint(64, (16,))
    loss = F.cross_entropy(net(first[rows], second[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        net.eval()
        with torch.no_grad():
            accuracy = (net(first[64:], second[64:]).argmax(1) == y[64:]).float().mean()
        net.train()
