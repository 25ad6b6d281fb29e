# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.mean, self.spread = nn.Linear(12, 16), nn.Linear(16, 2), nn.Linear(16, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 12), nn.Sigmoid())

    def forward(self, x):
        hidden = F.relu(self.encoder(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        return self.decoder(z), mean, spread


net = VAE()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
data = torch.rand(256, 12)
for _epoch in range(3):
    for x in data.split(32):
        optimizer.zero_grad()
        out, mean, spread = net(x)
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum()
        loss = F.binary_cross_entropy(out, x, reduction="sum") + divergence
        loss.backward()
        optimizer.step()
