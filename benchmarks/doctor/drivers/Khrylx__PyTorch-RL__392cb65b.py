# SPDX-License-Identifier: Apache-2.0
"""gail_gym.py for three iterations on a made-up world of two states, with made-up trajectories of an expert.

Today's torch takes no volatile=True, names clip_grad_norm_ otherwise: put right here.
"""

import pickle
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import torch

rng = np.random.default_rng(0)


class World:
    observation_space = types.SimpleNamespace(shape=(3,))
    action_space = types.SimpleNamespace(shape=(1,))

    def seed(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.time, self.state = 0, self.rng.standard_normal(3)
        return self.state

    def step(self, action):
        self.time += 1
        reward = -float(((action - self.state[:1]) ** 2).sum())
        self.state = self.rng.standard_normal(3)
        return self.state, reward, self.time >= 32, {}


gym = types.ModuleType("gym")
gym.make = lambda name: World()
sys.modules["gym"] = gym
states = rng.standard_normal((512, 3))
with Path("expert.p").open("wb") as file:
    pickle.dump(np.hstack([states, states[:, :1]]), file)

torch.autograd.Variable = lambda data, volatile=False, requires_grad=False: data
torch.nn.utils.clip_grad_norm = torch.nn.utils.clip_grad_norm_
sys.argv = [
    "gail/gail_gym.py",
    *("--env-name", "World", "--expert-traj-path", "expert.p"),
    *("--min-batch-size", "256", "--max-iter-num", "4"),
]
runpy.run_path("gail/gail_gym.py", run_name="__main__")
