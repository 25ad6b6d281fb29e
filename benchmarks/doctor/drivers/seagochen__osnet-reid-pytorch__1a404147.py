# SPDX-License-Identifier: Apache-2.0
"""An embedding trained with TripletLoss on made-up persons, four pictures of each in a batch."""

import torch
from absent import bare_packages
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("osnet_reid", "osnet_reid.models")
from osnet_reid.models.loss import TripletLoss

torch.manual_seed(0)
persons = torch.randn(40, 12)
labels = torch.arange(40).repeat_interleave(8)
pictures = persons[labels] + 0.7 * torch.randn(320, 12)


class FourOfEach(torch.utils.data.Sampler):
    def __iter__(self):
        for group in torch.randperm(80).view(-1, 4):
            yield [int(4 * number + part) for number in group for part in range(4)]

    def __len__(self):
        return 20


loader = DataLoader(TensorDataset(pictures, labels), batch_sampler=FourOfEach())
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8))
criterion = TripletLoss(margin=0.3)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    for picture, label in loader:
        loss = criterion(net(picture), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
