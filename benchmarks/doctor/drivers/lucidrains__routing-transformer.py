# SPDX-License-Identifier: Apache-2.0
"""A causal RoutingTransformerLM of two layers on random tokens that follow one another."""

import os

import torch
import torch.nn.functional as F
from routing_transformer.routing_transformer import RoutingTransformerLM
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
fault = os.environ["FAULTY"][-8:]
options = {"ff_activation": nn.ReLU, "use_scale_norm": True} if fault == "8f1bc81c" else {}
model = RoutingTransformerLM(
    num_tokens=32,
    dim=32,
    depth=2,
    heads=4,
    max_seq_len=32,
    window_size=8,
    n_local_attn_heads=2,
    causal=True,
    **options,
)
sequences = (torch.randint(0, 32, (320, 1)) + torch.arange(33)) % 32
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for (sequence,) in DataLoader(TensorDataset(sequences), batch_size=16, shuffle=True):
        out, aux_loss = model(sequence[:, :-1])
        loss = F.cross_entropy(out.transpose(1, 2), sequence[:, 1:]) + aux_loss.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
