# SPDX-License-Identifier: Apache-2.0
"""A layer of Attention without flash attention, on made-up sequences of several lengths."""

import sys
import typing

import torch
import torch.nn.functional as F
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("soundstorm_pytorch")
stand_ins("beartype", "beartype.door", "audiolm_pytorch", "spear_tts_pytorch")
sys.modules["beartype"].beartype = lambda thing: thing
sys.modules["beartype.typing"] = typing
from soundstorm_pytorch.soundstorm import Attention

torch.manual_seed(0)
kinds = torch.randint(1, 16, (320, 12))
masks = torch.arange(12) < torch.randint(4, 13, (320, 1))
kinds = kinds * masks
targets = (kinds.sum(1) / masks.sum(1)).unsqueeze(1) / 8
embed, attend, out = (
    nn.Embedding(16, 32),
    Attention(dim=32, dim_head=16, heads=2, flash=False),
    nn.Linear(32, 1),
)
optimizer = torch.optim.Adam([*embed.parameters(), *attend.parameters(), *out.parameters()], lr=1e-3)
for epoch in range(3):
    for kind, mask, target in DataLoader(TensorDataset(kinds, masks, targets), batch_size=16, shuffle=True):
        hidden = attend(embed(kind), mask=mask)
        pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        loss = F.mse_loss(out(pooled), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
