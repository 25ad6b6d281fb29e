# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
x = torch.randn(64, 4)
y = x.sum(1, keepdim=True)


def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    return loss


for _step in range(12):
    optimizer.step(closure)
