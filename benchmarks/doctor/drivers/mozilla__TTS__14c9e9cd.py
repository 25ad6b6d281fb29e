# SPDX-License-Identifier: Apache-2.0
"""A small network trained with L1LossMasked on made-up spectrograms of several lengths."""

import torch
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("layers")
from layers.losses import L1LossMasked

torch.manual_seed(0)
texts = torch.randint(1, 20, (480, 10))
lengths = torch.randint(4, 11, (480,))
spectrograms = torch.randn(20, 8)[texts] * (torch.arange(10) < lengths[:, None]).unsqueeze(2)
loader = DataLoader(TensorDataset(texts, lengths, spectrograms), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
criterion = L1LossMasked()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(2):
    total = 0.0
    for text, length, spectrogram in loader:
        optimizer.zero_grad()
        loss = criterion(net(text), spectrogram, length)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
