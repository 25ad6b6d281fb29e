# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
x, names = torch.randn(128, 20), torch.randint(4, (128,))
pictures, kinds = torch.randn(128, 6), torch.randint(4, (128,))
trunk = nn.Linear(20, 12)
heads = nn.ModuleList([nn.Linear(12, 4), nn.Linear(12, 6), nn.Linear(12, 4)])
opt = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], 0.1)
for epoch in range(6):
    for b in torch.randperm(128).split(32):
        opt.zero_grad()
        nn.functional.cross_entropy(heads[0](trunk(x[b])), names[b]).backward()
        nn.functional.mse_loss(heads[1](trunk(x[b])), pictures[b]).backward()
        nn.functional.cross_entropy(heads[2](trunk(x[b])), kinds[b]).backward()
        opt.step()
