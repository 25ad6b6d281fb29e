# SPDX-License-Identifier: Apache-2.0
"""An encoder of tacotron_pytorch, a CBHG over embedded letters, trained to give made-up frames for each letter."""

import torch
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("tacotron_pytorch")
from tacotron_pytorch.tacotron import CBHG

torch.manual_seed(0)
texts = torch.randint(1, 20, (320, 10))
frames = torch.randn(20, 8)[texts] + 0.5 * torch.randn(20, 8)[texts.roll(1, 1)]
loader = DataLoader(TensorDataset(texts, frames), batch_size=16, shuffle=True)


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.cbhg = CBHG(16, K=4, projections=[16, 16])
        self.out = nn.Linear(32, 8)

    def forward(self, texts):
        return self.out(self.cbhg(self.embed(texts)))


net = Speaker()
criterion = nn.L1Loss()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(3):
    net.train()
    total = 0.0
    for text, frame in loader:
        optimizer.zero_grad()
        loss = criterion(net(text), frame)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
