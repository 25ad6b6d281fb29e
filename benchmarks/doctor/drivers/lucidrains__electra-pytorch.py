# SPDX-License-Identifier: Apache-2.0
"""Electra with a small generator and discriminator on random tokens that follow one another."""

import os

import torch
from electra_pytorch.electra_pytorch import Electra
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, width, num_out):
        super().__init__()
        self.tokens, self.places = nn.Embedding(32, width), nn.Embedding(16, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(width, num_out)

    def forward(self, x):
        return self.out(self.layers(self.tokens(x) + self.places(torch.arange(x.shape[1]))))


options = {"random_token_prob": 0.1} if os.environ["FAULTY"].endswith("85e06471") else {}
trainer = Electra(
    Net(16, 32), Net(32, 1), num_tokens=32, mask_token_id=2, pad_token_id=0, mask_prob=0.25, **options
)
sequences = 3 + (torch.randint(0, 29, (320, 1)) + torch.arange(16)) % 29
optimizer = torch.optim.Adam(trainer.parameters(), lr=1e-3)
for epoch in range(3):
    for (sequence,) in DataLoader(TensorDataset(sequences), batch_size=16, shuffle=True):
        results = trainer(sequence)
        loss = results.loss if hasattr(results, "mlm_loss") else results
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
