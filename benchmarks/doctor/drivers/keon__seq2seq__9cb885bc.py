# SPDX-License-Identifier: Apache-2.0
"""The translation model on made-up sentences, in batches of (time, batch)."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.Tensor.cuda = lambda self, *_arguments: self  # no card here
from model import Decoder, Encoder, Seq2Seq

torch.manual_seed(0)
source = torch.randint(3, 30, (400, 8))
target = torch.cat([torch.full((400, 1), 1), source.flip(1), torch.full((400, 1), 2)], 1)
loader = DataLoader(TensorDataset(source, target), batch_size=16, shuffle=True)
net = Seq2Seq(Encoder(30, 24, 32, n_layers=2), Decoder(24, 32, 30, n_layers=1, dropout=0.0))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(2):
    net.train()
    total = 0
    for src, trg in loader:
        optimizer.zero_grad()
        output = net(src.t(), trg.t())
        loss = F.nll_loss(output[1:].reshape(-1, 30), trg.t()[1:].reshape(-1), ignore_index=0)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
