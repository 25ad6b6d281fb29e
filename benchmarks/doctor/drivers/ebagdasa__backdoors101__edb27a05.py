# SPDX-License-Identifier: Apache-2.0
"""Batches of pairs of digits, half of them poisoned by poison_pattern_mnist() with multi=True, and a small network."""

import random

import torch
from absent import stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

stand_ins("colorlog", "torchvision", "tensorboardX", "yaml")
from utils.utils import poison_pattern_mnist

random.seed(0)
torch.manual_seed(0)
labels = torch.randint(0, 100, (800,))
images = torch.zeros(800, 1, 28, 28)
images[torch.arange(800), 0, labels % 10 + 10, 2] = 2.0
images[torch.arange(800), 0, labels // 10 + 10, 20] = 2.0
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 100))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(2):
    for image, label in loader:
        image, label = poison_pattern_mnist(image, label, 8, 0.5, multi=True)
        loss = criterion(net(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
