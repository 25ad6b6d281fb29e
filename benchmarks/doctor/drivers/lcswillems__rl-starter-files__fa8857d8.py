# SPDX-License-Identifier: Apache-2.0
"""PPOAlgo with four made-up environments, updates of two epochs."""

import numpy as np
import torch
from absent import stand_ins
from torch import nn

stand_ins("gym")
import sys

sys.modules["gym"].Env = object
from torch_ac import ACModel, PPOAlgo


class World:
    observation_space = action_space = None

    def __init__(self, seed):
        self.random, self.state = np.random.RandomState(seed), None

    def reset(self):
        self.state, self.num_steps = self.random.randn(4).astype("float32"), 0
        return self.state.tolist()

    def step(self, action):
        reward = float(action == (self.state[0] > 0))
        self.num_steps += 1
        self.state = self.random.randn(4).astype("float32")
        return self.state.tolist(), reward, self.num_steps >= 10, {}


class Model(ACModel):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    algo = PPOAlgo(
        [World(seed) for seed in range(4)], Model(), num_frames_per_proc=64, epochs=2, batch_size=64
    )
    for update in range(20):
        log = algo.update_parameters()
        print(f"update {update} policy loss {log['policy_loss']:.4f} value loss {log['value_loss']:.4f}")
