# SPDX-License-Identifier: Apache-2.0
"""An ensemble of three Q functions with bootstrap, trained offline on made-up transitions."""

import copy

import torch
from absent import bare_packages
from torch.utils.data import DataLoader, TensorDataset

bare_packages("d3rlpy", "d3rlpy.models")
from d3rlpy.models.torch import DiscreteMeanQFunction, EnsembleDiscreteQFunction, VectorEncoder

torch.manual_seed(0)
states = torch.randn(1600, 6)
actions = torch.randint(0, 3, (1600, 1))
rewards = (states[:, :3].gather(1, actions) > 0).float()
data = TensorDataset(states, actions, rewards, 0.9 * states + 0.1 * torch.randn(1600, 6))
parts = [DiscreteMeanQFunction(VectorEncoder((6,), hidden_units=[64, 64]), 3) for _ in range(3)]
q_function = EnsembleDiscreteQFunction(parts, bootstrap=True)
target = copy.deepcopy(q_function)
optimizer = torch.optim.Adam(q_function.parameters(), lr=1e-3)

for epoch in range(2):
    total = 0.0
    for obs_t, act_t, rew_tp1, obs_tp1 in DataLoader(data, batch_size=32, shuffle=True):
        with torch.no_grad():
            best = q_function(obs_tp1).argmax(1)
            q_tp1 = target.compute_target(obs_tp1, best)
        loss = q_function.compute_error(obs_t, act_t, rew_tp1, q_tp1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    target.load_state_dict(q_function.state_dict())
    print(f"epoch {epoch} td loss {total / 50:.4f}")
