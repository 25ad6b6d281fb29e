# SPDX-License-Identifier: Apache-2.0
"""A small network whose rate follows adjust_optimizer() with a regime by epochs, as main.py calls it."""

import torch
from absent import stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

stand_ins("bokeh", "bokeh.io", "bokeh.plotting", "bokeh.layouts", "bokeh.charts")
from utils import adjust_optimizer

torch.manual_seed(0)
images = torch.randn(640, 12)
labels = images[:, :4].argmax(1)
training = DataLoader(TensorDataset(images[:512], labels[:512]), batch_size=16, shuffle=True)
validation = DataLoader(TensorDataset(images[512:], labels[512:]), batch_size=32)
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
regime = {
    0: {"optimizer": "SGD", "lr": 1e-1, "weight_decay": 1e-4, "momentum": 0.9},
    2: {"lr": 1e-2},
    4: {"lr": 1e-3, "weight_decay": 0},
}
criterion = nn.CrossEntropyLoss()
for epoch in range(6):
    optimizer = adjust_optimizer(optimizer, epoch, regime)
    net.train()
    for image, label in training:
        loss = criterion(net(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        right = sum((net(image).argmax(1) == label).sum().item() for image, label in validation)
    print(f"epoch {epoch} rate {optimizer.param_groups[0]['lr']} accuracy {right / 128:.3f}")
