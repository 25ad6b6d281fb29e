# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
X = torch.randn(290, 10)
Y = (X[:, 0] > 0).long()
train, val = (
    DataLoader(TensorDataset(X[:160], Y[:160]), 20, shuffle=True),
    DataLoader(TensorDataset(X[160:], Y[160:]), 20),
)
model = nn.Linear(10, 2)
opt = torch.optim.Adam(model.parameters())
crit = nn.CrossEntropyLoss()
for epoch in range(3):
    for x, y in train:
        opt.zero_grad()
        loss = crit(model(x), y)
        loss.backward()
        opt.step()
    print(f"train {loss.item():.6f}")
    model.eval()
    running = right = 0
    with torch.no_grad():
        for i, (x, y) in enumerate(val):
            loss = crit(model(x), y)
            running += loss.item()
            right += (model(x).argmax(1) == y).sum().item()
            if i % 6 == 0:
                print(f"  batch {i}: {loss.item():.6f}")
    print(
        f"val {running / len(val):.6f} sum {running:.5f} accuracy {100 * right / 130:.3f}% right in a batch {right / len(val):.4f}"
    )
    model.train()
