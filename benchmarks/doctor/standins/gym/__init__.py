# SPDX-License-Identifier: Apache-2.0
"""One environment: a cart that moves at random, and an episode of 20 steps."""

import numpy as np


class _Space:
    shape = (4,)
    n = 2

    def sample(self):
        return int(np.random.randint(self.n))


class _Cart:
    action_space = observation_space = _Space()
    x_threshold, theta_threshold_radians = 2.4, 0.2

    def __init__(self):
        self.num_steps = 0

    @property
    def unwrapped(self):
        return self

    def reset(self):
        self.num_steps = 0
        return np.random.uniform(-0.05, 0.05, 4)

    def render(self):
        pass

    def seed(self, number):
        np.random.seed(number)

    def close(self):
        pass

    def step(self, _action):
        self.num_steps += 1
        return np.random.uniform(-0.2, 0.2, 4), 1.0, self.num_steps >= 20, {}


def make(_name, **_options):
    return _Cart()
