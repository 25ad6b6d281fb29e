# SPDX-License-Identifier: Apache-2.0
"""main() of PPO.py for 60 episodes of a made-up lander, states and rewards at random."""

import sys
import types

import numpy as np

np.random.seed(0)


class Lander:
    observation_space = types.SimpleNamespace(shape=(8,))
    num_episodes = num_steps = 0

    def reset(self):
        self.num_episodes += 1
        self.num_steps = 0
        if self.num_episodes > 60:
            sys.exit(0)
        return np.random.randn(8).astype("float32")

    def step(self, action):
        self.num_steps += 1
        return (
            np.random.randn(8).astype("float32"),
            float(np.random.randn() + (action == 1)),
            self.num_steps > 30,
            {},
        )


sys.modules["gym"] = types.ModuleType("gym")
sys.modules["gym"].make = lambda name: Lander()
import PPO

PPO.main()
