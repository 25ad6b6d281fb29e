# SPDX-License-Identifier: Apache-2.0
"""A VAE whose terms are sums over an example's numbers and means over examples, with the KL term warmed up."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp() if self.training else mean
        return self.decoder(z), mean, log_var


def terms(net, x):
    logits, mean, log_var = net(x)
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
    kl = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1)
    return reconstruction, kl


data = (torch.rand(400, 16) > torch.linspace(0, 1, 16)).float()
train = DataLoader(TensorDataset(data[:320]), batch_size=16, shuffle=True)
held = DataLoader(TensorDataset(data[320:]), batch_size=32)
net = VAE()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(4):
    net.train()
    weight = min(1.0, epoch / 2)
    for (x,) in train:
        reconstruction, kl = terms(net, x)
        loss = (reconstruction + weight * kl).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        found = [torch.stack(terms(net, x)) for (x,) in held]
    reconstruction, kl = torch.cat(found, 1).mean(1).tolist()
    print(f"epoch {epoch}: reconstruction {reconstruction:.4f} kl {kl:.4f}")
