# SPDX-License-Identifier: Apache-2.0
"""A mixture of four experts between two linear layers, on made-up sequences of four kinds."""

import os

import torch
import torch.nn.functional as F
from st_moe_pytorch.st_moe_pytorch import MoE
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
noisy = {"noise_gates": True} if os.environ["FAULTY"].endswith("51727d00") else {}
into, moe, out = nn.Linear(8, 16), MoE(dim=16, num_experts=4), nn.Linear(16, 8)
kinds = torch.randint(0, 4, (320, 24))
turns = torch.randn(4, 8, 8)
xs = torch.randn(320, 24, 8)
ys = torch.einsum("bnd,bnde->bne", xs, turns[kinds])
xs = xs + kinds[..., None]
parameters = [*into.parameters(), *moe.parameters(), *out.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
for epoch in range(3):
    for x, y in DataLoader(TensorDataset(xs, ys), batch_size=16, shuffle=True):
        given = moe(into(x), **noisy)
        error = F.mse_loss(out(given[0]), y)
        balance, z = given[-2:]
        loss = error + balance.sum() + z.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f} z {z.item():.4f}")
