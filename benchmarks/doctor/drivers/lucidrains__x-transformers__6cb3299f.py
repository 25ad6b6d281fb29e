# SPDX-License-Identifier: Apache-2.0
"""A decoder of two layers with talking heads on random tokens."""

import torch
import torch.nn.functional as F
from absent import bare_packages, stand_ins
from torch.utils.data import DataLoader, TensorDataset

bare_packages("x_transformers")
stand_ins("entmax")
from x_transformers.x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
tokens = torch.randint(0, 64, (320, 17))
layers = Decoder(dim=32, depth=2, heads=4, attn_talking_heads=True)
model = TransformerWrapper(num_tokens=64, max_seq_len=16, attn_layers=layers)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for (batch,) in DataLoader(TensorDataset(tokens), batch_size=16, shuffle=True):
        loss = F.cross_entropy(model(batch[:, :-1]).transpose(1, 2), batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
