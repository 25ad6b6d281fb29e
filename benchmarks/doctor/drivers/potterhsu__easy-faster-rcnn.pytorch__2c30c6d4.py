# SPDX-License-Identifier: Apache-2.0
"""A small network that learns the offsets of boxes by BBox.calc_transformer, and an evaluation by their overlap."""

import torch
import torch.nn.functional as F
from bbox import BBox
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
corners = torch.rand(640, 2) * 20
proposals = torch.cat([corners, corners + 10], 1)
found = torch.cat([corners + torch.rand(640, 2) * 4, corners + 12 + torch.rand(640, 2) * 8], 1)
pictures = torch.cat([found - proposals + 0.2 * torch.randn(640, 4), torch.randn(640, 4)], 1)
training = DataLoader(
    TensorDataset(pictures[:512], proposals[:512], found[:512]), batch_size=16, shuffle=True
)
validation = DataLoader(TensorDataset(pictures[512:], proposals[512:], found[512:]), batch_size=16)
net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

for epoch in range(4):
    for picture, proposal, box in training:
        loss = F.smooth_l1_loss(net(picture), BBox.calc_transformer(proposal, box))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    distance, count = 0.0, 0
    with torch.no_grad():
        for picture, proposal, box in validation:
            distance += (BBox.apply_transformer(proposal, net(picture)) - box).abs().sum().item()
            count += box.numel()
    print(f"epoch {epoch} loss {loss.item():.4f} distance {distance / count:.3f}")
