# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.src, self.dst = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 1)
        self.rate = nn.Parameter(torch.ones(16))

    def forward(self, x):
        h = self.w(x)
        pairs = self.src(h) + self.dst(h).T  # of every node with every other
        gaps = self.src(h).squeeze(1)[:, None] - self.dst(h).squeeze(1)
        far = h.pow(2).sum(1, keepdim=True) + h.pow(2).sum(1) - 2 * h @ h.T
        wide = self.dst(h) * self.rate  # as many rates as rows, by chance
        return (pairs.softmax(1) @ h).mean(1) + gaps.mean(1) + far.mean(1) + wide.mean(1)


net = Attention()
enc = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))
guided = nn.Linear(8, 4)
opt = torch.optim.Adam([*net.parameters(), *enc.parameters(), *guided.parameters()], lr=1e-3)
for step in range(24):
    x = torch.randn(16, 6)
    z = F.normalize(enc(torch.cat([x, x + 0.05 * torch.randn_like(x)])), dim=-1)
    sim = z @ z.t() / 0.2
    masked = sim.masked_fill(torch.eye(32, dtype=torch.bool), -1e9)
    target = torch.cat([torch.arange(16, 32), torch.arange(16)])
    others = sim[~torch.eye(32, dtype=torch.bool)].view(32, 31)
    symmetric = F.cross_entropy(sim, torch.arange(32))  # each is to be found by itself
    h = enc(x)
    both = guided(torch.cat([h, h], dim=1))  # of both parts the same, for once
    twice = enc(torch.cat([x, x]))
    loss = F.cross_entropy(masked, target) + F.cross_entropy(others, target % 31) + 0.1 * symmetric
    loss = loss + net(x).pow(2).mean() + both.pow(2).mean() + twice.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
