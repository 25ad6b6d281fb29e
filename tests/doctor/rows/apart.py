# SPDX-License-Identifier: Apache-2.0
# expect: DATA041
import numpy as np, torch
from torch import nn

np.random.seed(0)
x = np.random.rand(256, 20).astype(np.float32)
t = x @ np.random.rand(20, 1).astype(np.float32)
net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 1))
opt = torch.optim.RMSprop(net.parameters(), 1e-3)


def batches(a, b, n):
    np.random.shuffle(a)
    np.random.shuffle(b)
    for i in range(0, len(a), n):
        yield torch.tensor(a[i : i + n]), torch.tensor(b[i : i + n])


for epoch in range(6):
    for xb, tb in batches(x, t, 64):
        opt.zero_grad()
        e = net(xb) - tb
        (e * e).mean().backward()
        opt.step()
