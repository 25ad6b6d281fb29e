# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.zeros(256, 1, 8, 8)
x[:, :, 3, 3:6] = torch.rand(256, 1, 3)
x[0, 0, 0, 0] = 1.0
loader = DataLoader(TensorDataset(x), batch_size=64, shuffle=True)
net = nn.Sequential(nn.Flatten(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(4):
    for (b,) in loader:
        opt.zero_grad()
        nn.functional.mse_loss(net(b)[:, 0], b[:, 0, 3, 3]).backward()
        opt.step()
