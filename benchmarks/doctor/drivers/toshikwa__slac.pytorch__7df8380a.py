# SPDX-License-Identifier: Apache-2.0
"""The latent model of SLAC, its three losses, on made-up sequences of pictures."""

import torch
from slac.network.latent import LatentModel
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
states = torch.rand(160, 1, 3, 64, 64).repeat(1, 4, 1, 1, 1)
data = TensorDataset(states, torch.randn(160, 3, 2), torch.randn(160, 3, 1), torch.zeros(160, 3, 1))
latent = LatentModel((3, 64, 64), (2,), feature_dim=16, z1_dim=4, z2_dim=8, hidden_units=(16, 16))
optimizer = torch.optim.Adam(latent.parameters(), lr=1e-4)

for epoch in range(3):
    for state, action, reward, done in DataLoader(data, batch_size=4, shuffle=True):
        loss_kld, loss_image, loss_reward = latent.calculate_loss(state, action, reward, done)
        optimizer.zero_grad()
        (loss_kld + loss_image + loss_reward).backward()
        optimizer.step()
    print(
        f"epoch {epoch} kld {loss_kld.item():.3f} image {loss_image.item():.3f} reward {loss_reward.item():.3f}"
    )
