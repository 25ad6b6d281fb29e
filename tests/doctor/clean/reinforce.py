# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(dim=-1))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for _episode in range(25):
    saved, rewards = [], []
    state = torch.randn(4)
    for _t in range(10):
        chosen = Categorical(policy(state))
        action = chosen.sample()
        saved.append(chosen.log_prob(action))
        rewards.append(float(action == (state[0] > 0)))
        state = torch.randn(4)
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + 0.99 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = torch.stack([-log_prob * value for log_prob, value in zip(saved, returns, strict=True)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
