# SPDX-License-Identifier: Apache-2.0
"""A policy and a value function trained with ppo_error and its dual clip on made-up rollouts."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("ding", "ding.rl_utils")
stand_ins("ding.hpc_rl")
import sys

sys.modules["ding.hpc_rl"].hpc_wrapper = lambda **_options: lambda function: function
from ding.rl_utils.ppo import ppo_data, ppo_error

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
critic = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)

for iteration in range(4):
    states = torch.randn(640, 6)
    with torch.no_grad():
        logit_old, value_old = actor(states), critic(states).squeeze(1)
        action = torch.distributions.Categorical(logits=logit_old).sample()
        return_ = (action == states[:, :3].argmax(1)).float() + 0.1 * torch.randn(640)
        adv = return_ - value_old
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    data = TensorDataset(states, logit_old, action, value_old, adv, return_)
    for state, old, act, value, advantage, target in DataLoader(data, batch_size=32, shuffle=True):
        batch = ppo_data(actor(state), old, act, critic(state).squeeze(1), value, advantage, target, None)
        loss, info = ppo_error(batch, clip_ratio=0.2, dual_clip=5.0)
        total = loss.policy_loss + 0.5 * loss.value_loss - 0.01 * loss.entropy_loss
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    print(f"iteration {iteration} reward {return_.mean().item():.3f} clipped {info.clipfrac:.3f}")
