# SPDX-License-Identifier: Apache-2.0
"""A small network trained with MultiClassBatchDiceLoss on made-up maps of three classes."""

import torch
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("utils")
from utils.loss import MultiClassBatchDiceLoss

torch.manual_seed(0)
maps = torch.randint(0, 3, (320, 8, 8))
images = nn.functional.one_hot(maps, 3).permute(0, 3, 1, 2) + 0.5 * torch.randn(320, 3, 8, 8)
training = DataLoader(TensorDataset(images[:256], maps[:256]), batch_size=8, shuffle=True)
validation = DataLoader(TensorDataset(images[256:], maps[256:]), batch_size=8)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
criterion = MultiClassBatchDiceLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    net.train()
    for image, target in training:
        optimizer.zero_grad()
        loss = criterion(net(image), target)
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        valid = sum(criterion(net(image), target).item() for image, target in validation) / len(validation)
    print(f"epoch {epoch} loss {loss.item():.4f} valid {valid:.4f}")
