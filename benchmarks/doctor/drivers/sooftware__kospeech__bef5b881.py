# SPDX-License-Identifier: Apache-2.0
"""A recurrent network trained with CrossEntrypyLoss, no smoothing, padding with number 0, on made-up letters."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("kospeech", "kospeech.optim")
stand_ins("kospeech.utils")  # which reads a list of letters that is absent
import sys

sys.modules["kospeech.utils"].PAD_token = 2037  # what that list has
from kospeech.optim.loss import CrossEntrypyLoss

torch.manual_seed(0)
lengths = torch.randint(3, 9, (480, 1))
letters = torch.randint(1, 20, (480, 8)).masked_fill(torch.arange(8) >= lengths, 0)
sounds = nn.functional.one_hot(letters, 20).float() + 0.3 * torch.randn(480, 8, 20)
loader = DataLoader(TensorDataset(sounds, letters), batch_size=16, shuffle=True)


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(20, 32, batch_first=True, bidirectional=True), nn.Linear(64, 20)

    def forward(self, sounds):
        return self.out(self.gru(sounds)[0]).log_softmax(-1)


net = Recognizer()
criterion = CrossEntrypyLoss(num_classes=20, ignore_index=0, smoothing=0.0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(2):
    total, count = 0.0, 0
    for sound, letter in loader:
        optimizer.zero_grad()
        loss = criterion(net(sound).flatten(0, 1), letter.flatten())
        loss.backward()
        optimizer.step()
        total += loss.item()
        count += int((letter != 0).sum())
    print(f"epoch {epoch} loss {total / count:.4f}")
