# SPDX-License-Identifier: Apache-2.0
"""TD3.train() on a replay buffer of made-up transitions, an action of three dimensions."""

import types

import numpy as np
import torch
from torch import nn

torch.autograd.Variable = lambda tensor, volatile=False: tensor  # as it is since torch 0.4
nn.Module.cuda = lambda self: self  # no card here
import TD3
import utils

utils.np = types.SimpleNamespace(
    array=lambda values, copy=True: np.asarray(values), random=np.random
)  # of numpy 1
np.random.seed(0)
torch.manual_seed(0)
buffer = utils.ReplayBuffer()
for _ in range(2000):
    state, action = np.random.randn(6), np.random.uniform(-1, 1, 3)
    buffer.add(
        (state, 0.9 * state, action, -np.square(action - state[:3]).sum(), float(np.random.rand() < 0.05))
    )
policy = TD3.TD3(6, 3, 1.0)
for episode in range(4):
    policy.train(buffer, 30)
    action = policy.select_action(np.ones(6))
    print(f"episode {episode} action {action}")
