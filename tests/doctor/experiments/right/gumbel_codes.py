# SPDX-License-Identifier: Apache-2.0
"""Discrete codes by Gumbel softmax, whose temperature falls."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

np.random.seed(0)
torch.manual_seed(0)
GROUPS, CODES = 4, 5


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, GROUPS * CODES))
        self.codebook = nn.Parameter(torch.randn(GROUPS, CODES, 3) * 0.5)
        self.dec = nn.Sequential(nn.Linear(GROUPS * 3, 32), nn.ReLU(), nn.Linear(32, 12))

    def forward(self, x, tau):
        logits = self.enc(x).view(x.size(0), GROUPS, CODES)
        onehot = F.gumbel_softmax(logits, tau=tau, hard=True, dim=-1)
        z = torch.einsum("bgk,gkd->bgd", onehot, self.codebook)
        return self.dec(z.flatten(1)), F.softmax(logits, dim=-1)


rows = np.random.randn(160, 4).astype(np.float32) @ np.random.randn(4, 12).astype(np.float32)
loader = DataLoader(rows, batch_size=16, shuffle=True)
model, tau = Autoencoder(), 1.0
optim = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(4):
    losses = []
    for x in loader:
        recon, probs = model(x, tau)
        kl = (probs * (probs.clamp_min(1e-9) * CODES).log()).sum(-1).sum(-1).mean()
        loss = F.mse_loss(recon, x, reduction="sum") / x.size(0) + 0.1 * kl
        optim.zero_grad()
        loss.backward()
        optim.step()
        losses.append(loss.item())
    tau = max(0.5, tau * 0.9)
    print("epoch", epoch, "loss", np.mean(losses))
