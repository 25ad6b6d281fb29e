# SPDX-License-Identifier: Apache-2.0
"""A graph convolution with adjacency matrices of made-up sentences, which are not symmetric, and a tag for each word."""

import torch
import torch.nn.functional as F
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("supar", "supar.modules")
stand_ins("supar.modules.dropout")
from supar.modules import gnn

torch.manual_seed(0)
words = torch.randint(1, 50, (480, 7))
arcs = (torch.rand(480, 7, 7) > 0.6).float() + torch.eye(7)
tags = (words + arcs.argmax(2)) % 5
loader = DataLoader(TensorDataset(words, arcs.clamp(max=1), tags), batch_size=16, shuffle=True)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.conv, self.out = nn.Embedding(50, 24), gnn.GraphConv(24), nn.Linear(24, 5)

    def forward(self, words, arcs):
        embedded = self.embed(words)
        return self.out(embedded + self.conv(embedded, arcs).relu())


net = Tagger()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(2):
    for word, arc, tag in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(word, arc).flatten(0, 1), tag.flatten())
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
