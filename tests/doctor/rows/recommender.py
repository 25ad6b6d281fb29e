# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, Subset

torch.manual_seed(0)
u, i = torch.randint(80, (3000,)), torch.randint(120, (3000,))
r = torch.randint(1, 6, (3000,)).float()
ds = TensorDataset(u, i, r)


class MF(nn.Module):
    def __init__(s):
        super().__init__()
        s.u, s.i = nn.Embedding(80, 8), nn.Embedding(120, 8)

    def forward(s, a, b):
        return (s.u(a) * s.i(b)).sum(-1) + 3


net = MF()
opt = torch.optim.Adagrad(net.parameters(), 0.1)
perm = torch.randperm(3000)
train, test = Subset(ds, perm[:2700].tolist()), Subset(ds, perm[2700:].tolist())
for e in range(2):
    for a, b, c in DataLoader(train, 128, shuffle=True):
        opt.zero_grad()
        nn.MSELoss()(net(a, b), c).backward()
        opt.step()
    with torch.no_grad():
        print(
            sum(
                nn.functional.mse_loss(net(a, b), c, reduction="sum").item()
                for a, b, c in DataLoader(test, 250)
            )
            / 1000
        )
