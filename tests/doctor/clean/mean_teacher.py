# SPDX-License-Identifier: Apache-2.0
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(5, 24), nn.BatchNorm1d(24), nn.ReLU())
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.dropout(self.backbone(x)))


class MeanTeacher:
    def __init__(self, momentum=0.99):
        self.student = Classifier()
        self.teacher = copy.deepcopy(self.student)
        for parameter in self.teacher.parameters():
            parameter.requires_grad_(False)
        self.momentum = momentum
        self.optimizer = torch.optim.Adam(self.student.parameters(), lr=1e-3)

    @torch.no_grad()
    def _update_teacher(self):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            slow.mul_(self.momentum).add_(fast, alpha=1 - self.momentum)
        for slow, fast in zip(self.teacher.buffers(), self.student.buffers(), strict=True):
            slow.copy_(fast)

    def step(self, labelled, y, unlabelled):
        self.student.train()
        self.teacher.train()  # its dropout is a view of its own
        with torch.no_grad():
            goal = self.teacher(unlabelled + 0.1 * torch.randn_like(unlabelled)).softmax(1)
        supervised = F.cross_entropy(self.student(labelled), y)
        consistency = F.mse_loss(self.student(unlabelled).softmax(1), goal)
        loss = supervised + 0.5 * consistency
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self._update_teacher()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, x, y):
        self.teacher.eval()
        return (self.teacher(x).argmax(1) == y).float().mean().item()


method = MeanTeacher()
for epoch in range(3):
    for _ in range(10):
        method.step(torch.randn(16, 5), torch.randint(3, (16,)), torch.randn(32, 5))
    print(epoch, method.evaluate(torch.randn(32, 5), torch.randint(3, (32,))))
