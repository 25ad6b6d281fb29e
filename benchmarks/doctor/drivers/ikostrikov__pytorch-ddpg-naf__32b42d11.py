# SPDX-License-Identifier: Apache-2.0
"""DDPG.update_parameters() on a replay memory of made-up transitions, episodes of ten steps."""

import types

import torch
from ddpg import DDPG
from replay_memory import ReplayMemory, Transition

torch.manual_seed(0)
agent = DDPG(0.99, 0.001, 32, 4, types.SimpleNamespace(shape=(2,)))
memory = ReplayMemory(1000)
state = torch.randn(1, 4)
for t in range(500):
    action = agent.select_action(state)
    next_state = torch.randn(1, 4)
    reward = -(action - state[:, :2]).square().sum(1)
    memory.push(state, action, torch.Tensor([float(t % 10 != 9)]), next_state, reward)
    state = next_state
    if len(memory) > 64:
        batch = Transition(*zip(*memory.sample(64), strict=True))
        value_loss, policy_loss = agent.update_parameters(batch)
    if t % 100 == 99:
        print(f"step {t} value loss {value_loss:.4f} policy loss {policy_loss:.4f}")
