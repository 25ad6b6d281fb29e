# SPDX-License-Identifier: Apache-2.0
"""An autoencoder of linear layers around SimVQ, on made-up sequences."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from vector_quantize_pytorch.sim_vq import SimVQ

torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(640, 6, 10)), batch_size=16, shuffle=True)
encoder = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 8))
decoder = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 10))
codes = SimVQ(dim=8, codebook_size=64)
parameters = [*encoder.parameters(), *decoder.parameters(), *codes.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-3)

for epoch in range(2):
    for (x,) in data:
        quantized, indices, commit_loss = codes(encoder(x))
        loss = F.mse_loss(decoder(quantized), x) + 10.0 * commit_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
