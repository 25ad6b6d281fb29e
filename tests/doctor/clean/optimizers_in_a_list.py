# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 16)
        self.drop = nn.Dropout(0.3)
        self.outer = nn.Linear(16, 3)

    def forward(self, x):
        return self.outer(self.drop(torch.relu(self.inner(x))))


members = [Expert() for _ in range(3)]
optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in members]
x, y = torch.randn(96, 5), torch.randint(3, (96,))
for step in range(10):
    for member in members:
        member.train()
    rows = torch.randint(64, (16,))
    for each in optimizers:
        each.zero_grad()
    losses = [F.cross_entropy(member(x[rows]), y[rows]) for member in members]
    sum(losses).backward()
    for optimizer in optimizers:
        optimizer.step()
    if step % 5 == 4:
        for member in members:
            member.eval()
        with torch.no_grad():
            votes = torch.stack([member(x[64:]).softmax(1) for member in members]).mean(0)
            print((votes.argmax(1) == y[64:]).float().mean().item())
for member, optimizer in zip(members, optimizers, strict=True):
    member.train()
    for rows in torch.randperm(64).split(16):
        optimizer.zero_grad()
        loss = F.cross_entropy(member(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
