# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn

torch.manual_seed(0)


class Wave(nn.Module):
    """A net that has to satisfy y'' = -y, y(0) = 0, y'(0) = 1."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(1, 20), nn.Linear(20, 20)])
        self.last = nn.Linear(20, 1)

    def forward(self, t):
        for layer in self.layers:
            t = torch.tanh(layer(t))
        return self.last(t)


def derivative(y, t):
    return torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]


net = Wave()
times = torch.linspace(0, 3, 40).unsqueeze(1).requires_grad_()
start = torch.zeros(1, 1, requires_grad=True)
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=8, history_size=10, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    y = net(times)
    residual = derivative(derivative(y, times), times) + y
    begin = net(start)
    slope = derivative(begin, start)
    loss = residual.pow(2).mean() + begin.pow(2).mean() + (slope - 1).pow(2).mean()
    loss.backward()
    return loss


for round_ in range(6):
    loss = optimizer.step(closure)
    print(round_, loss.item())
net.eval()
with torch.no_grad():
    print((net(times) - times.sin()).abs().max().item())
