# SPDX-License-Identifier: Apache-2.0
"""A decoder-only language model: tied weights, mixed precision by autocast, accumulation, perplexity by tokens."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Blocks(Dataset):
    def __init__(self, tokens, length):
        self.tokens, self.length = tokens, length

    def __len__(self):
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, row):
        part = self.tokens[row * self.length : (row + 1) * self.length + 1]
        return part[:-1], part[1:]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            each.view(b, t, self.heads, -1).transpose(1, 2) for each in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, vocabulary=32, width=32, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


tokens = (torch.arange(6000) * 7 % 31 + torch.randint(0, 2, (6000,))) % 32
train = DataLoader(Blocks(tokens[:5000], 16), batch_size=8, shuffle=True)
held = DataLoader(Blocks(tokens[5000:], 16), batch_size=16)
model = Model()
decayed = [each for each in model.parameters() if each.ndim > 1]
others = [each for each in model.parameters() if each.ndim <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=2e-3
)
for epoch in range(3):
    model.train()
    for number, (x, y) in enumerate(train, 1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / 2
        loss.backward()
        if number % 2 == 0 or number == len(train):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    model.eval()
    total = count = 0
    with torch.no_grad():
        for x, y in held:
            total += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item()
            count += y.numel()
    print(f"epoch {epoch}: perplexity {math.exp(total / count):.3f}")
