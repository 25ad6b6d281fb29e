# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(128, 20)
t = torch.randint(4, (128,))
net = nn.Linear(20, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(8):
    for b in torch.randperm(128).split(32):
        yb = t[b].clone()
        flip = torch.rand(len(b)) < 0.2
        yb[flip] = torch.randint(4, (int(flip.sum()),))
        opt.zero_grad()
        nn.functional.cross_entropy(net(x[b]), yb).backward()
        opt.step()
