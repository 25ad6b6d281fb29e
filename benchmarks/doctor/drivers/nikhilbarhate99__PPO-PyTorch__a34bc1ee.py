# SPDX-License-Identifier: Apache-2.0
"""PPO_continuous on a made-up environment with an action of one dimension, as its main() goes on."""

import numpy as np
import torch
from PPO_continuous import PPO, Memory

np.random.seed(0)
torch.manual_seed(0)
memory = Memory()
ppo = PPO(3, 1, 0.5, 0.0003, (0.9, 0.999), 0.99, 10, 0.2)
time_step = 0
for episode in range(40):
    state, total = np.random.randn(3), 0.0
    for t in range(50):
        time_step += 1
        action = ppo.select_action(state, memory)
        reward = -float((action[0] - state[0]) ** 2)
        state = np.random.randn(3)
        memory.rewards.append(reward)
        memory.is_terminals.append(t == 49)
        if time_step % 200 == 0:
            ppo.update(memory)
            memory.clear_memory()
            time_step = 0
        total += reward
    print(f"episode {episode} reward {total:.2f}")
