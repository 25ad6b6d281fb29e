# SPDX-License-Identifier: Apache-2.0
"""A critic trained with expectile_l2_loss, tau of 0.9, on made-up states and returns."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("rectified_flow_pytorch")
stand_ins(
    "fire",
    "gymnasium",
    "memmap_replay_buffer",
    "ema_pytorch",
    "x_mlps_pytorch",
    "wandb",
    "moviepy",
    "rectified_flow_pytorch.mean_flow",
)
stand_ins(
    "rectified_flow_pytorch.nano_flow",
    "hyper_connections",
    "adam_atan2_pytorch",
    "x_mlps_pytorch.ensemble",
    "gymnasium.wrappers",
)
stand_ins(
    "torch_einops_utils",
    "assoc_scan",
    "hl_gauss_pytorch",
    "x_mlps_pytorch.normed_mlp",
    "discrete_continuous_embed_readout",
)
from train_mean_flow_ql import expectile_l2_loss

torch.manual_seed(0)
states = torch.randn(640, 6)
returns = states[:, 0] + 0.5 * torch.randn(640)
critic = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for epoch in range(3):
    for state, target in DataLoader(TensorDataset(states, returns), batch_size=16, shuffle=True):
        loss = expectile_l2_loss(critic(state).squeeze(1), target, tau=0.9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
