# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
temperature = nn.Parameter(torch.tensor(0.1))
optimizer = torch.optim.AdamW([*encoder.parameters(), temperature], lr=1e-3)
for _step in range(25):
    x = torch.randn(32, 8)
    first = F.normalize(encoder(x + 0.1 * torch.randn_like(x)))
    second = F.normalize(encoder(x + 0.1 * torch.randn_like(x)))
    logits = first @ second.T / temperature
    labels = torch.arange(32)
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
