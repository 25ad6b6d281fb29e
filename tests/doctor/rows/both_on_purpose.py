# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn
from torch.utils.data import TensorDataset, DataLoader

torch.manual_seed(3)
X = torch.randn(600, 10)
y = (X[:, :3].sum(1) > 0).long()
tr, va = (
    DataLoader(TensorDataset(X[:480], y[:480]), 16, shuffle=True),
    DataLoader(TensorDataset(X[480:], y[480:]), 60),
)
net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Dropout(0.1), nn.Linear(20, 2))
opt = torch.optim.AdamW(net.parameters())


@torch.no_grad()
def accuracy(dl):
    net.eval()
    r = [(net(a).argmax(1) == b).float().mean() for a, b in dl]
    net.train()
    return torch.stack(r).mean().item()


for e in range(3):
    for a, b in tr:
        loss = nn.functional.cross_entropy(net(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(accuracy(tr), accuracy(va))
