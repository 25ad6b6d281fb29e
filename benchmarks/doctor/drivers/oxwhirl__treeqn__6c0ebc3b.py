# SPDX-License-Identifier: Apache-2.0
"""A network that predicts the next two rewards, with build_sequences() on made-up rollouts, as its learner trains it."""

import numpy as np
import torch
import torch.nn.functional as F
from absent import bare_packages
from torch import nn

bare_packages("treeqn", "treeqn.utils")
from treeqn.utils.treeqn_utils import build_sequences

NUM_ENVS, NUM_STEPS, DEPTH = 8, 5, 2
np.random.seed(0)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, DEPTH))
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.99, eps=1e-5)
for update in range(120):
    obs = np.random.randn(NUM_ENVS * NUM_STEPS, 6).astype("float32")
    rewards = (obs[:, 0] + 0.1 * np.random.randn(len(obs))).astype("float32")
    masks = np.random.rand(NUM_ENVS * NUM_STEPS) < 0.1
    reward_sequences, sequence_mask = build_sequences(
        [torch.from_numpy(rewards)], masks, NUM_ENVS, NUM_STEPS, DEPTH, return_mask=True
    )
    losses = F.mse_loss(net(torch.from_numpy(obs)), reward_sequences.squeeze(-1), reduction="none")
    loss = torch.sum(losses * sequence_mask.squeeze(-1)) / sequence_mask.sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
    if update % 20 == 0:
        print(f"update {update} loss {loss.item():.4f}")
