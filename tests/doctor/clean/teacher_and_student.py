# SPDX-License-Identifier: Apache-2.0
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
teacher = copy.deepcopy(student).eval().requires_grad_(False)
average = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
for step in range(30):
    student.train()
    x, y = torch.randn(32, 4), torch.randint(3, (32,))
    with torch.no_grad():
        hints = teacher(x)
    logits = student(x)
    soft = F.kl_div(logits.log_softmax(1), hints.softmax(1), reduction="batchmean")
    loss = F.cross_entropy(logits, y, label_smoothing=0.1) + soft
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), student.parameters(), strict=True):
            slow.lerp_(fast, 0.01)
    if step % 10 == 9:
        student.eval()
        average.eval()
        with torch.no_grad():
            student(x), average(x)
