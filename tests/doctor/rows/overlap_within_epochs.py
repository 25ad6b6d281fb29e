# SPDX-License-Identifier: Apache-2.0
# expect: DATA040
# the rows are drawn twice, and the evaluation comes within the epoch: another loader gives batches in between
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

rng = np.random.default_rng(0)
x = torch.randn(200, 8)
data = TensorDataset(x, (x.sum(1) > 0).long())
loader = DataLoader(Subset(data, rng.permutation(200)[:160].tolist()), batch_size=16, shuffle=True)
held_out = DataLoader(Subset(data, rng.permutation(200)[160:].tolist()), batch_size=20)
net = nn.Linear(8, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(1):
    for number, (inputs, targets) in enumerate(loader):
        loss = F.cross_entropy(net(inputs), targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if number % 4 == 1:
            with torch.no_grad():
                right = sum((net(a).argmax(1) == b).sum().item() for a, b in held_out)
