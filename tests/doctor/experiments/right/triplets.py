# SPDX-License-Identifier: Apache-2.0
"""Metric learning: triplets from a data set, anchors' distances with a margin, retrieval as the figure."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
centres = torch.randn(5, 8)


class Triplets(Dataset):
    def __init__(self, size):
        self.labels = torch.arange(size) % 5
        self.points = centres[self.labels] + 0.5 * torch.randn(size, 8)

    def __len__(self):
        return len(self.points)

    def __getitem__(self, row):
        same = torch.nonzero(self.labels == self.labels[row]).flatten()
        other = torch.nonzero(self.labels != self.labels[row]).flatten()
        positive = same[torch.randint(len(same), ())]
        negative = other[torch.randint(len(other), ())]
        return self.points[row], self.points[positive], self.points[negative], self.labels[row]


net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
data, held = Triplets(320), Triplets(100)
loader = DataLoader(data, batch_size=16, shuffle=True, drop_last=True)
for epoch in range(3):
    net.train()
    for anchor, positive, negative, _ in loader:
        a, p, n = (F.normalize(net(each), dim=1) for each in (anchor, positive, negative))
        loss = F.relu((a - p).square().sum(1) - (a - n).square().sum(1) + 0.5).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    embedded, labels = [], []
    with torch.no_grad():
        for anchor, _, _, y in DataLoader(held, batch_size=32):
            embedded.append(F.normalize(net(anchor), dim=1))
            labels.append(y)
    embedded, labels = torch.cat(embedded), torch.cat(labels)
    near = torch.cdist(embedded, embedded).fill_diagonal_(9).argmin(1)
    print(f"epoch {epoch}: retrieved {(labels[near] == labels).float().mean().item():.4f}")
