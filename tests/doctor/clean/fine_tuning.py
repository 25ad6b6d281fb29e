# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1))
for parameter in backbone.parameters():
    parameter.requires_grad = False
head = nn.Linear(16, 3)
net = nn.Sequential(backbone, head)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for _epoch in range(3):
    net.train()
    backbone.eval()
    for _ in range(8):
        x, y = torch.randn(16, 4), torch.randint(3, (16,))
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    net.eval()
    with torch.inference_mode():
        net(torch.randn(16, 4)).argmax(1)
