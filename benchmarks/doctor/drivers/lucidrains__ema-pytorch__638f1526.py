# SPDX-License-Identifier: Apache-2.0
"""EMA of a network with batch norm, evaluated after each epoch, on made-up points."""

import torch
import torch.nn.functional as F
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("ema_pytorch")
from ema_pytorch.ema_pytorch import EMA

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
ema = EMA(net, beta=0.99, update_after_step=10, update_every=2)
labels = torch.randint(0, 3, (480,))
points = 2 * torch.randn(3, 8)[labels] + torch.randn(480, 8) + 1
train = DataLoader(TensorDataset(points[:384], labels[:384]), batch_size=16, shuffle=True)
test = DataLoader(TensorDataset(points[384:], labels[384:]), batch_size=32)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    net.train()
    for x, y in train:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update()
    ema.ema_model.eval()
    right = 0
    with torch.no_grad():
        for x, y in test:
            right += (ema(x).argmax(1) == y).sum().item()
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / 96:.4f}")
