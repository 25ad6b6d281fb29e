# SPDX-License-Identifier: Apache-2.0
"""A network that keeps a differential equation at fixed points, its start and its ends; all points are one batch."""

import math
from itertools import pairwise

import torch
import torch.nn as nn

torch.manual_seed(1234)


class PINN(nn.Module):
    def __init__(self, layers=(2, 20, 20, 1)):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(layers))

    def forward(self, x, t):
        h = torch.cat([x, t], dim=1)
        for layer in self.linears[:-1]:
            h = torch.tanh(layer(h))
        return self.linears[-1](h)


def grad(u, x):
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]


x_f = torch.rand(100, 1, requires_grad=True)
t_f = torch.rand(100, 1, requires_grad=True)
x_0 = torch.linspace(0, 1, 30)[:, None]
u_0 = torch.sin(math.pi * x_0)
t_0 = torch.zeros_like(x_0)
t_b = torch.rand(30, 1)
x_left, x_right = torch.zeros_like(t_b), torch.ones_like(t_b)

model = PINN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for it in range(10):
    optimizer.zero_grad()
    u = model(x_f, t_f)
    f = grad(u, t_f) - 0.1 * grad(grad(u, x_f), x_f)
    loss = (
        f.pow(2).mean()
        + (model(x_0, t_0) - u_0).pow(2).mean()
        + model(x_left, t_b).pow(2).mean()
        + model(x_right, t_b).pow(2).mean()
    )
    loss.backward()
    optimizer.step()
    print("iteration", it, "loss", round(loss.item(), 6))
