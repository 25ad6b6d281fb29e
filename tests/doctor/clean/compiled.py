# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 3))
fast = torch.compile(net, backend="eager")
optimizer = torch.optim.Adam(fast.parameters(), lr=1e-2)
for _epoch in range(2):
    fast.train()
    for _ in range(12):
        x, y = torch.randn(16, 4), torch.randint(3, (16,))
        optimizer.zero_grad()
        F.cross_entropy(fast(x), y).backward()
        optimizer.step()
    fast.eval()
    with torch.no_grad():
        fast(torch.randn(16, 4))
