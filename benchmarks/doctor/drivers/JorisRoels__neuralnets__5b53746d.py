# SPDX-License-Identifier: Apache-2.0
"""StronglyLabeledMultiVolumeDataset of two made-up volumes with three tissues, and a small network on it."""

import sys

import numpy as np
import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader

bare_packages("neuralnets", "neuralnets.util", "neuralnets.data")
stand_ins("neuralnets.util.io", "scipy.ndimage.morphology")
rng = np.random.default_rng(0)
labels = [rng.integers(0, 3, (8, 12, 12)).repeat(4, 1).repeat(4, 2) for _ in range(2)]
volumes = {f"labels{n}": each for n, each in enumerate(labels)}
volumes |= {f"data{n}": each / 2 + 0.1 * rng.standard_normal(each.shape) for n, each in enumerate(labels)}
sys.modules["neuralnets.util.io"].read_volume = lambda path, **options: volumes[path]
from neuralnets.data.datasets import StronglyLabeledMultiVolumeDataset

torch.manual_seed(0)
dataset = StronglyLabeledMultiVolumeDataset(
    ["data0", "data1"],
    ["labels0", "labels1"],
    input_shape=(1, 16, 16),
    len_epoch=160,
    types=["tif3d", "tif3d"],
)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for picture, label in DataLoader(dataset, batch_size=8, shuffle=True):
        loss = nn.functional.cross_entropy(net(picture.float()), label[:, 0].long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
