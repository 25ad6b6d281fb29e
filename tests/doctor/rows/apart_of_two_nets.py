# SPDX-License-Identifier: Apache-2.0
# expect: DATA041 DATA041
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(48, 12), torch.arange(48) % 3
first, second = (nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2))
opt = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.01)
for epoch in range(4):
    y = y[torch.randperm(48)]
    for rows in torch.randperm(48).split(16):
        opt.zero_grad()
        out = (first(x[rows])
               + second(x[rows]))  # fmt: skip
        F.cross_entropy(out, y[rows]).backward()
        opt.step()
