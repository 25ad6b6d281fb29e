# SPDX-License-Identifier: Apache-2.0
"""A small network trained with DiceLossWithLogits, the mean over channels, on made-up masks."""

import torch
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("torch_em", "torch_em.loss")
from torch_em.loss.dice import DiceLossWithLogits

torch.manual_seed(0)
images = torch.rand(240, 1, 16, 16)
masks = torch.cat([images > 0.5, images < 0.2], 1).float()
loader = DataLoader(TensorDataset(images, masks), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))
criterion = DiceLossWithLogits(reduce_channel="mean")
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(2):
    for image, mask in loader:
        optimizer.zero_grad()
        loss = criterion(net(image), mask)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
