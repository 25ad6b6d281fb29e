# SPDX-License-Identifier: Apache-2.0
"""An autoencoder of two linear layers around VectorQuantize, whose codes in use are to be orthogonal."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from vector_quantize_pytorch import VectorQuantize

torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(640, 6, 10)), batch_size=16, shuffle=True)
encoder, decoder = nn.Linear(10, 8), nn.Linear(8, 10)
codes = VectorQuantize(
    dim=8, codebook_size=32, orthogonal_reg_weight=10, orthogonal_reg_active_codes_only=True
)
parameters = [*encoder.parameters(), *decoder.parameters(), *codes.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-3)

for epoch in range(2):
    for (x,) in data:
        quantized, indices, commit_loss = codes(encoder(x))
        loss = F.mse_loss(decoder(quantized), x) + commit_loss.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
