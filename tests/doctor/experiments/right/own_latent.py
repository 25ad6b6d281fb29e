# SPDX-License-Identifier: Apache-2.0
"""BYOL: an online network predicts a slow target's projection of the other view; no negatives."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def head(inner, outer):
    return nn.Sequential(nn.Linear(inner, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, outer))


online, predictor = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), head(16, 8)), head(8, 8)
target = copy.deepcopy(online)
for each in target.parameters():
    each.requires_grad = False
optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9)
loader = DataLoader(TensorDataset(torch.randn(320, 10)), batch_size=16, shuffle=True, drop_last=True)


def distance(first, second):
    return 2 - 2 * F.cosine_similarity(first, second.detach(), dim=-1)


for epoch in range(3):
    total = 0.0
    for (x,) in loader:
        one, two = x + 0.2 * torch.randn_like(x), x + 0.2 * torch.randn_like(x)
        with torch.no_grad():
            t_one, t_two = target(one), target(two)
        loss = (distance(predictor(online(one)), t_two) + distance(predictor(online(two)), t_one)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.mul_(0.99).add_(fast, alpha=0.01)
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.4f}")
