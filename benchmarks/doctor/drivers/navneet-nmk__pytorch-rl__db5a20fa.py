# SPDX-License-Identifier: Apache-2.0
"""fit_batch() of train_ddpg.py on a buffer of made-up transitions."""

import Buffer
import torch
import train_ddpg
from torch import nn

torch.manual_seed(0)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh())

    def forward(self, states):
        return self.layers(states)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, states, actions):
        return self.layers(torch.cat([states, actions], 1))


actor, target_actor, critic, target_critic = Actor(), Actor(), Critic(), Critic()
target_actor.load_state_dict(actor.state_dict())
target_critic.load_state_dict(critic.state_dict())
buffer = Buffer.ReplayBuffer(1000)
for _ in range(500):
    state, action = torch.randn(1, 5), torch.rand(1, 2) * 2 - 1
    reward = -(action - state[:, :2]).square().sum(1)
    buffer.push(
        state, action, torch.randn(1, 5), reward, (torch.rand(1) < 0.1).float(), None, None, None, None, 0
    )
for iteration in range(80):
    loss = train_ddpg.fit_batch(
        target_actor, actor, target_critic, critic, buffer, 64, 0.98, 20, nn.MSELoss(), iteration, 1e-4, 1e-3
    )
    if iteration % 20 == 0:
        print(f"iteration {iteration} loss {loss.item():.4f}")
