# SPDX-License-Identifier: Apache-2.0
"""A teacher that is the average of its student, on labelled rows and rows without labels in one batch."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(240, 6)
y = (x[:, :3].sum(1) > 0).long()
y[60:] = -1
train_loader = DataLoader(TensorDataset(x, y), batch_size=24, shuffle=True, drop_last=True)
test_loader = DataLoader(TensorDataset(torch.randn(50, 6), torch.randint(2, (50,))), batch_size=25)

student = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True)


def update_ema(step, alpha=0.99):
    alpha = min(1 - 1 / (step + 1), alpha)
    for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
        t.data.mul_(alpha).add_(s.data, alpha=1 - alpha)
    for t, s in zip(teacher.buffers(), student.buffers(), strict=True):
        t.copy_(s)


def consistency_weight(epoch, rampup=3):
    return 2.0 * min(1.0, epoch / rampup)


step = 0
for epoch in range(4):
    student.train()
    for inputs, labels in train_loader:
        noisy, other = inputs + 0.1 * torch.randn_like(inputs), inputs + 0.1 * torch.randn_like(inputs)
        out = student(noisy)
        with torch.no_grad():
            target = teacher(other).softmax(dim=1)
        class_loss = F.cross_entropy(out, labels, ignore_index=-1, reduction="sum") / len(inputs)
        loss = class_loss + consistency_weight(epoch) * F.mse_loss(out.softmax(dim=1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        update_ema(step)
    correct = 0
    teacher.eval()
    with torch.no_grad():
        for inputs, labels in test_loader:
            correct += (teacher(inputs).argmax(1) == labels).sum().item()
    teacher.train()
    print(f"Epoch {epoch} accuracy {100.0 * correct / len(test_loader.dataset):.2f}%")
