# SPDX-License-Identifier: Apache-2.0
"""Contrastive learning: two views of each example, all others of the batch are negatives; a linear probe judges."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class TwoViews(Dataset):
    def __init__(self, size):
        self.labels = torch.arange(size) % 4
        self.points = F.one_hot(self.labels, 4).float() @ torch.randn(4, 10) + 0.3 * torch.randn(size, 10)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, row):
        x = self.points[row]
        return x + 0.1 * torch.randn(10), x * (torch.rand(10) > 0.2), self.labels[row]


def nt_xent(first, second, temperature=0.5):
    z = F.normalize(torch.cat([first, second]), dim=1)
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    count = len(first)
    partner = torch.cat([torch.arange(count, 2 * count), torch.arange(count)])
    return F.cross_entropy(similarity, partner)


encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16))
projector = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=1e-3)
data = TwoViews(400)
loader = DataLoader(data, batch_size=20, shuffle=True, drop_last=True)

for epoch in range(3):
    total = 0.0
    for first, second, _ in loader:
        loss = nt_xent(projector(encoder(first)), projector(encoder(second)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.4f}")

with torch.no_grad():
    features = encoder(data.points)
probe = nn.Linear(16, 4)
head = torch.optim.SGD(probe.parameters(), lr=0.1)
for _ in range(5):
    for x, y in DataLoader(list(zip(features, data.labels, strict=True)), batch_size=50, shuffle=True):
        head.zero_grad()
        F.cross_entropy(probe(x), y).backward()
        head.step()
with torch.no_grad():
    print(f"probe accuracy {(probe(features).argmax(1) == data.labels).float().mean().item():.4f}")
