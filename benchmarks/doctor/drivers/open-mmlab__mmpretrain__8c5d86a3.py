# SPDX-License-Identifier: Apache-2.0
"""A classifier with two heads, trained with LabelSmoothLoss, the second with a loss_weight of 0.4."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("mmcls", "mmcls.models", "mmcls.models.losses")
stand_ins("mmcls.registry")
import sys

sys.modules["mmcls.registry"].MODELS.register_module = lambda: lambda kind: kind
from mmcls.models.losses.label_smooth_loss import LabelSmoothLoss

torch.manual_seed(0)
images = torch.randn(960, 12)
labels = images[:, :5].argmax(1)
training = DataLoader(TensorDataset(images[:800], labels[:800]), batch_size=16, shuffle=True)
validation = DataLoader(TensorDataset(images[800:], labels[800:]), batch_size=32)
body, head, beside = nn.Sequential(nn.Linear(12, 32), nn.ReLU()), nn.Linear(32, 5), nn.Linear(32, 5)
loss_of_head = LabelSmoothLoss(0.1, num_classes=5)
loss_beside = LabelSmoothLoss(0.1, num_classes=5, loss_weight=0.4)
parameters = [*body.parameters(), *head.parameters(), *beside.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

for epoch in range(2):
    for image, label in training:
        features = body(image)
        loss = loss_of_head(head(features), label) + loss_beside(beside(features), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = sum((head(body(image)).argmax(1) == label).sum().item() for image, label in validation)
    print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right / 160:.3f}")
