# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


@torch.compile(backend="eager")
def loss_of(x, y):
    return F.cross_entropy(net(x), y)


for _step in range(25):
    x, y = torch.randn(16, 4), torch.randint(3, (16,))
    optimizer.zero_grad()
    loss_of(x, y).backward()
    optimizer.step()
