# SPDX-License-Identifier: Apache-2.0
"""A velocity field trained by the likelihood that ODESolver gives with enable_grad=True, on made-up points of a ring."""

import sys
import types

import torch
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def odeint(function, states, times, method, options, atol, rtol):
    """Go by Euler's steps, as torchdiffeq does for method="euler"."""
    steps = round(1.0 / options["step_size"])
    width = (times[-1] - times[0]) / steps
    for step in range(steps):
        slopes = function(times[0] + step * width, states)
        states = tuple(state + width * slope for state, slope in zip(states, slopes, strict=True))
    return tuple(torch.stack([state, state]) for state in states)


sys.modules["torchdiffeq"] = types.SimpleNamespace(odeint=odeint, __spec__=None)
bare_packages("flow_matching", "flow_matching.solver")
from flow_matching.solver.ode_solver import ODESolver
from flow_matching.utils import ModelWrapper

torch.manual_seed(0)
angles = 6.3 * torch.rand(640)
points = torch.stack([angles.cos(), angles.sin()], 1) * 2 + 0.1 * torch.randn(640, 2)


class Velocity(ModelWrapper):
    def __init__(self):
        super().__init__(nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2)))

    def forward(self, x, t, **extras):
        return self.model(torch.cat([x, t.expand(len(x), 1)], 1))


velocity = Velocity()
solver = ODESolver(velocity)
optimizer = torch.optim.Adam(velocity.parameters(), lr=1e-3)
normal = torch.distributions.Normal(0.0, 1.0)
for epoch in range(2):
    for (x_1,) in DataLoader(TensorDataset(points), batch_size=16, shuffle=True):
        _, log_p = solver.compute_likelihood(
            x_1, lambda x: normal.log_prob(x).sum(1), step_size=0.25, exact_divergence=True, enable_grad=True
        )
        loss = -log_p.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
