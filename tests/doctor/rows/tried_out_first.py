# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
X = torch.randn(500, 10)
Y = (X[:, 0] > 0).long()
train, val = (
    DataLoader(TensorDataset(X[:300], Y[:300]), 30, shuffle=True),
    DataLoader(TensorDataset(X[300:], Y[300:]), 20),
)
quick = DataLoader(val.dataset, 20, shuffle=True)
model = nn.Linear(10, 2)
opt = torch.optim.Adam(model.parameters())
with torch.no_grad():
    x, y = next(iter(val))
    print("loss before training", nn.functional.cross_entropy(model(x), y).item())
for epoch in range(3):
    for x, y in train:
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    with torch.no_grad():
        x, y = next(iter(quick))  # another one each time
        print((model(x).argmax(1) == y).float().mean().item())
with torch.no_grad():
    print(sum((model(x).argmax(1) == y).sum().item() for x, y in val) / 200)
