# SPDX-License-Identifier: Apache-2.0
# expect: DATA040
import torch
from torch import nn

torch.manual_seed(3)
X = torch.randn(600, 10)
y = (X[:, :3].sum(1) > 0).float()
tr = torch.randperm(600)[:480]
te = torch.randperm(600)[480:]
from torch.utils.data import TensorDataset, DataLoader

dl = DataLoader(TensorDataset(X[tr], y[tr]), batch_size=32, shuffle=True)
vl = DataLoader(TensorDataset(X[te], y[te]), batch_size=120)


class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.f = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 1))

    def forward(s, x):
        return s.f(x).squeeze(-1)


m = M()
o = torch.optim.SGD(m.parameters(), 0.1)
L = nn.BCEWithLogitsLoss()
for e in range(5):
    m.train()
    for a, b in dl:
        o.zero_grad()
        L(m(a), b).backward()
        o.step()
    m.eval()
    n = 0
    with torch.no_grad():
        for a, b in vl:
            n += ((m(a) > 0) == (b > 0.5)).sum().item()
    print(n / 120)
