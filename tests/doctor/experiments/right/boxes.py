# SPDX-License-Identifier: Apache-2.0
"""Detection in small: targets of different counts for each image, matched to anchors, two terms of the loss."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Scenes(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, row):
        drawn = torch.Generator().manual_seed(row)
        count = int(torch.randint(1, 4, (), generator=drawn))
        cells = torch.randperm(16, generator=drawn)[:count]
        offsets = torch.rand(count, 2, generator=drawn)
        image = 0.1 * torch.randn(1, 4, 4, generator=drawn)
        image.view(-1)[cells] += 1 + offsets.sum(1)
        return image, {"cells": cells, "offsets": offsets}


def collate(samples):
    images, targets = zip(*samples, strict=True)
    return torch.stack(images), list(targets)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.ReLU())
        self.score, self.offset = nn.Conv2d(16, 1, 1), nn.Conv2d(16, 2, 1)

    def forward(self, images):
        hidden = self.body(images)
        return self.score(hidden).flatten(1), self.offset(hidden).flatten(2).transpose(1, 2)


def loss_of(net, images, targets):
    scores, offsets = net(images)
    wanted = torch.zeros_like(scores)
    regression = scores.new_zeros(())
    for row, each in enumerate(targets):
        wanted[row, each["cells"]] = 1.0
        regression = regression + F.l1_loss(offsets[row, each["cells"]], each["offsets"])
    return F.binary_cross_entropy_with_logits(scores, wanted) + regression / len(targets)


net = Detector()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
train = DataLoader(Scenes(240), batch_size=12, shuffle=True, collate_fn=collate)
held = DataLoader(Scenes(60), batch_size=12, collate_fn=collate)
for epoch in range(3):
    net.train()
    for images, targets in train:
        loss = loss_of(net, images, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    total = 0.0
    with torch.no_grad():
        for images, targets in held:
            total += loss_of(net, images, targets).item() * len(images)
    print(f"epoch {epoch}: held-out loss {total / len(held.dataset):.4f}")
