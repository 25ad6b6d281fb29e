# SPDX-License-Identifier: Apache-2.0
"""train_test_split on a made-up volume of two tissues, then a small network on slices of its two parts."""

import numpy as np
import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("neuralnets", "neuralnets.util")
stand_ins("scipy.ndimage.morphology", "neuralnets.util.io")
from neuralnets.util.tools import train_test_split

rng = np.random.default_rng(0)
torch.manual_seed(0)
labels = (rng.random((48, 8, 8)) < 0.4).astype("float32").repeat(3, 1).repeat(3, 2)
volume = (0.4 * labels + 0.3 + 0.1 * rng.standard_normal(labels.shape)).astype("float32")
x_train, y_train, x_test, y_test = train_test_split(volume, labels, test_size=0.25)


def loader(x, y, shuffle):
    x, y = (torch.from_numpy(np.ascontiguousarray(each))[:, None] for each in (x, y))
    return DataLoader(TensorDataset(x, y), batch_size=4, shuffle=shuffle)


net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    net.train()
    for picture, label in loader(x_train, y_train, True):
        loss = nn.functional.binary_cross_entropy_with_logits(net(picture), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    right = count = 0
    with torch.no_grad():
        for picture, label in loader(x_test, y_test, False):
            right += ((net(picture) > 0).float() == label).sum().item()
            count += label.numel()
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / count:.4f}")
