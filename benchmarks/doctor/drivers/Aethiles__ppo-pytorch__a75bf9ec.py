# SPDX-License-Identifier: Apache-2.0
"""A small policy trained on made-up rewards, its scores kept as a Run and written by Experiment."""

import numpy as np
import torch
from source.evaluation import Experiment, Run
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
steps, values = [], []
for step in range(60):
    states = torch.randn(32, 4)
    policy = torch.distributions.Categorical(logits=net(states))
    actions = policy.sample()
    rewards = (actions == (states[:, 0] > 0).long()).float()
    loss = -(policy.log_prob(actions) * (rewards - rewards.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps.append(step * 32)
    values.append(rewards.mean().item())
experiment = Experiment(".", "Cart", [Run(np.array(steps), np.array(values))])
experiment.save()
experiment.score()
print(experiment.to_json()[:80])
