# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
classes, distance = nn.Linear(16, 3), nn.Linear(16, 1)
opt_body = torch.optim.Adam(body.parameters(), lr=1e-3)
opt_heads = torch.optim.SGD([*classes.parameters(), *distance.parameters()], lr=1e-2)
for _step in range(25):
    x, y, d = torch.randn(16, 4), torch.randint(3, (16,)), torch.randn(16)
    opt_body.zero_grad()
    opt_heads.zero_grad()
    hidden = body(x)
    F.cross_entropy(classes(hidden), y).backward(retain_graph=True)
    F.mse_loss(distance(hidden).squeeze(1), d).backward()
    opt_body.step()
    opt_heads.step()
