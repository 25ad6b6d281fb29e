# SPDX-License-Identifier: Apache-2.0
"""a2c_step with the repository's discrete policy and value network, on made-up states and returns."""

import warnings

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
from core.a2c import a2c_step
from models.mlp_critic import Value
from models.mlp_policy_disc import DiscretePolicy

warnings.filterwarnings("ignore")
torch.nn.utils.clip_grad_norm = torch.nn.utils.clip_grad_norm_  # its name of old
torch.manual_seed(0)
policy, value = DiscretePolicy(4, 3, hidden_size=(32, 32)), Value(4, hidden_size=(32, 32))
of_policy = torch.optim.Adam(policy.parameters(), lr=1e-3)
of_value = torch.optim.Adam(value.parameters(), lr=1e-3)
for iteration in range(12):
    states = torch.randn(256, 4)
    with torch.no_grad():
        actions = policy(states).multinomial(1).squeeze(1)
        values = value(states)
    rewards = (actions == (states[:, :3].argmax(1))).double().unsqueeze(1)
    advantages = rewards - values
    advantages = (advantages - advantages.mean()) / advantages.std()
    for batch in DataLoader(TensorDataset(states, actions, rewards, advantages), batch_size=64):
        a2c_step(policy, value, of_policy, of_value, *batch, 1e-3)
    print(f"iteration {iteration} reward {rewards.mean().item():.4f}")
