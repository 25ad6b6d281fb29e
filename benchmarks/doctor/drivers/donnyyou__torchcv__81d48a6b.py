# SPDX-License-Identifier: Apache-2.0
"""A small network trained with FSOhemCELoss on images that are easy, whole batches of them."""

import torch
from models.seg.loss.seg_modules import FSOhemCELoss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Configer:
    """The configuration of the loss."""

    values = {"ohem_thresh": 0.7, "ohem_minkeep": 16, "ce_reduction": "mean", "ce_ignore_index": 255}

    def get(self, *_names):
        return self.values

    def exists(self, *_names):
        return True


torch.manual_seed(0)
labels = torch.randint(0, 2, (320, 8, 8))
images = torch.stack([labels == 0, labels == 1], 1) * 4.0 + 0.1 * torch.randn(320, 2, 8, 8)
labels[::4] = 255  # pictures that nobody labelled
loader = DataLoader(TensorDataset(images, labels), batch_size=2, shuffle=True)
net = nn.Sequential(nn.Conv2d(2, 8, 1), nn.ReLU(), nn.Conv2d(8, 2, 1))
criterion = FSOhemCELoss(Configer())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

for epoch in range(2):
    for image, label in loader:
        optimizer.zero_grad()
        loss = criterion(net(image), label)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
