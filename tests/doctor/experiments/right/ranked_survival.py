# SPDX-License-Identifier: Apache-2.0
"""Cox regression: the partial likelihood compares each example with those still at risk; concordance as the figure."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(400, 5)
times = torch.exp(-x[:, 0] + 0.3 * torch.randn(400))
events = (torch.rand(400) > 0.3).float()
train = DataLoader(TensorDataset(x[:320], times[:320], events[:320]), batch_size=32, shuffle=True)
held = DataLoader(TensorDataset(x[320:], times[320:], events[320:]), batch_size=40)
net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1, bias=False))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)


def partial_likelihood(risk, time, event):
    order = time.argsort(descending=True)
    risk, event = risk[order], event[order]
    return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)


for epoch in range(6):
    for inputs, time, event in train:
        loss = partial_likelihood(net(inputs).squeeze(1), time, event)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        kept = [(net(inputs).squeeze(1), time, event) for inputs, time, event in held]
    risk, time, event = (torch.cat(each) for each in zip(*kept, strict=True))
    earlier = (time[:, None] < time) & (event[:, None] == 1)
    right = (risk[:, None] > risk) & earlier
    print(f"epoch {epoch}: concordance {right.sum().item() / earlier.sum().item():.4f}")
