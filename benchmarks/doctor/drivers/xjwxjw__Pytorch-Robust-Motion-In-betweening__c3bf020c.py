# SPDX-License-Identifier: Apache-2.0
"""The data set LaFan1 on made-up motions of four joints, and a recurrent network that predicts the next frame."""

import sys

import numpy as np
import torch
from absent import stand_ins
from torch import nn
from torch.utils.data import DataLoader

stand_ins("lafan1", "lafan1.extract", "lafan1.utils", "lafan1.benchmarks")
rng = np.random.default_rng(0)
steps = rng.standard_normal((96, 50, 4, 3)).cumsum(1)
turns = rng.standard_normal((96, 50, 4, 4))
contacts = rng.random((96, 50, 2)) < 0.5
lafan = sys.modules["lafan1"]
lafan.extract.get_lafan1_set = lambda *args, **options: (steps, turns, [-1, 0, 1, 2], contacts, contacts)
lafan.utils.quat_fk = lambda turn, step, parents: (turn, step)
from LaFan import LaFan1

torch.manual_seed(0)
loader = DataLoader(LaFan1("bvh", train=True, seq_len=50), batch_size=8, shuffle=True)
net = nn.GRU(12, 32, batch_first=True)
head = nn.Linear(32, 12)
optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-3, amsgrad=True)
for epoch in range(4):
    for batch in loader:
        frames = batch["X"].flatten(2)
        hidden, _ = net(frames[:, :-1])
        loss = (head(hidden) - frames[:, 1:]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
