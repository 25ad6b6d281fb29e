# SPDX-License-Identifier: Apache-2.0
"""Distillation: a frozen teacher's soft targets and true labels, with a temperature, and a cosine schedule."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
T = 3.0


def network(width):
    return nn.Sequential(
        nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 3)
    )


teacher, student = network(64), network(12)
teacher.eval().requires_grad_(False)
x = torch.randn(400, 6)
y = teacher(x).argmax(1)
train = DataLoader(TensorDataset(x[:320], y[:320]), batch_size=16, shuffle=True)
held = DataLoader(TensorDataset(x[320:], y[320:]), batch_size=32)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 * len(train))

for epoch in range(3):
    student.train()
    running = 0.0
    for inputs, labels in train:
        logits = student(inputs)
        with torch.no_grad():
            soft = F.softmax(teacher(inputs) / T, 1)
        distilled = F.kl_div(F.log_softmax(logits / T, 1), soft, reduction="batchmean") * T * T
        loss = 0.7 * distilled + 0.3 * F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        running += loss.item() * len(inputs)
    student.eval()
    right = 0
    with torch.no_grad():
        for inputs, labels in held:
            right += (student(inputs).argmax(1) == labels).sum().item()
    print(
        f"epoch {epoch}: loss {running / 320:.4f} accuracy {right / 80:.4f} lr {schedule.get_last_lr()[0]:.5f}"
    )
