# SPDX-License-Identifier: Apache-2.0
"""A small 3D network trained with MyDiceLoss, on made-up volumes with one channel of labels."""

import torch
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("unet3d", "unet3d.utils", "unet3d.utils.pytorch", "unet3d.utils.pytorch.losses")
from unet3d.utils.pytorch.losses.losses import MyDiceLoss

torch.manual_seed(0)
volumes = torch.rand(120, 1, 8, 8, 8)
labels = (volumes > 0.6).float()
training = DataLoader(TensorDataset(volumes[:96], labels[:96]), batch_size=1, shuffle=True)
validation = DataLoader(TensorDataset(volumes[96:], labels[96:]), batch_size=1)
net = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 1, 1), nn.Sigmoid())
criterion = MyDiceLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(2):
    net.train()
    for volume, label in training:
        optimizer.zero_grad()
        loss = criterion(net(volume), label)
        loss.backward()
        optimizer.step()
    net.eval()
    losses = []
    with torch.no_grad():
        for volume, label in validation:
            losses.append(criterion(net(volume), label).item())
    print(f"epoch {epoch} loss {loss.item():.4f} validation {sum(losses) / len(losses):.4f}")
