# SPDX-License-Identifier: Apache-2.0
"""Models whose graphs are looked at by several tests."""

import importlib.util
import sys
from functools import cache
from pathlib import Path

import torch
from torch import nn

import truestep as ts

FILE = Path(__file__).parents[2] / "benchmarks" / "model" / "architectures.py"


def loaded():
    spec = importlib.util.spec_from_file_location("model_architectures", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


ARCHITECTURES = loaded().ALL


class Block(nn.Module):
    def __init__(self, width=16, **settings):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True, **settings)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask=None):
        y = self.norm(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self, depth=24):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(8, 16)
        self.blocks = nn.ModuleList([Block() for _ in range(depth)])
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        mask = torch.zeros(x.shape[1], x.shape[1], device=x.device)
        for block in self.blocks:
            h = block(h, mask)
        return self.head(h)


WORDS = torch.zeros(2, 8, dtype=torch.long)


@cache
def large(name):
    if name == "transformer":
        return ts.graph(Transformer(), WORDS)
    return ts.graph(ARCHITECTURES[name].make(), ARCHITECTURES[name].batch())
