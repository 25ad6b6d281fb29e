# SPDX-License-Identifier: Apache-2.0
"""A VQ-VAE: codes straight through, the codebook as moving averages, perplexity of each epoch's codes."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Codebook(nn.Module):
    def __init__(self, num_codes=16, dim=8):
        super().__init__()
        self.register_buffer("codes", torch.randn(num_codes, dim))
        self.register_buffer("sizes", torch.ones(num_codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, z):
        chosen = torch.cdist(z, self.codes).argmin(1)
        quantized = self.codes[chosen]
        if self.training:
            with torch.no_grad():
                one_hot = F.one_hot(chosen, len(self.codes)).float()
                self.sizes.mul_(0.99).add_(one_hot.sum(0), alpha=0.01)
                self.sums.mul_(0.99).add_(one_hot.T @ z, alpha=0.01)
                self.codes.copy_(self.sums / self.sizes.clamp(min=1e-3)[:, None])
        commitment = F.mse_loss(z, quantized.detach())
        return z + (quantized - z).detach(), commitment, chosen


encoder = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
codebook, decoder = Codebook(), nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 12))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
points = torch.randn(4, 12)[torch.arange(400) % 4] + 0.1 * torch.randn(400, 12)
train = DataLoader(TensorDataset(points[:320]), batch_size=16, shuffle=True)
held = DataLoader(TensorDataset(points[320:]), batch_size=16)

for epoch in range(3):
    for (x,) in train:
        quantized, commitment, _ = codebook(encoder(x))
        loss = F.mse_loss(decoder(quantized), x) + 0.25 * commitment
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    codebook.eval()
    error, counts = 0.0, torch.zeros(16)
    with torch.no_grad():
        for (x,) in held:
            quantized, _, chosen = codebook(encoder(x))
            error += F.mse_loss(decoder(quantized), x, reduction="sum").item()
            counts += torch.bincount(chosen, minlength=16)
    codebook.train()
    share = counts / counts.sum()
    print(
        f"epoch {epoch}: error {error / 80 / 12:.4f} perplexity {(-(share * (share + 1e-9).log()).sum()).exp().item():.3f}"
    )
