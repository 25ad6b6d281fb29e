# SPDX-License-Identifier: Apache-2.0
"""Volumes of two channels normalised by zero_mean() over the last two axes, slice by slice, and a small network."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, Dataset

bare_packages("unet3d", "unet3d.utils")
stand_ins("monai", "monai.transforms", "monai.transforms.intensity", "monai.transforms.intensity.array")
from unet3d.utils.normalize import zero_mean

torch.manual_seed(0)


class Volumes(Dataset):
    def __init__(self):
        self.volumes = torch.rand(160, 2, 6, 6, 6) * 3 + 5
        self.labels = (self.volumes[:, 0, 2:4].mean((1, 2, 3)) > 6.5).long()

    def __len__(self):
        return 160

    def __getitem__(self, index):
        return zero_mean(self.volumes[index], axis=(-1, -2, -3)), self.labels[index]


net = nn.Sequential(nn.Conv3d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for volume, label in DataLoader(Volumes(), batch_size=8, shuffle=True):
        loss = criterion(net(volume), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
