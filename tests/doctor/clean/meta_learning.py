# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _step in range(12):
    optimizer.zero_grad()
    total = 0.0
    for _task in range(4):
        slope = torch.rand(1) * 4 - 2
        inner, outer = torch.randn(16, 1), torch.randn(16, 1)
        fast = dict(net.named_parameters())
        loss = F.mse_loss(functional_call(net, fast, (inner,)), slope * inner)
        gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {name: each - 0.01 * g for (name, each), g in zip(fast.items(), gradients, strict=True)}
        total = total + F.mse_loss(functional_call(net, fast, (outer,)), slope * outer)
    (total / 4).backward()
    optimizer.step()
