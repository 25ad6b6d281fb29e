# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)
        )

    def forward(self, x):
        return self.layers(x)


def enable_dropout(model):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.train()


def predict(model, x, samples=8):
    model.eval()
    enable_dropout(model)
    with torch.no_grad():
        drawn = torch.stack([model(x) for _ in range(samples)])
    return drawn.mean(0), drawn.std(0)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
x = torch.randn(96, 3)
y = x.sum(1, keepdim=True) + 0.1 * torch.randn(96, 1)
for epoch in range(5):
    model.train()
    for rows in torch.randperm(64).split(16):
        loss = F.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean, spread = predict(model, x[64:])
    print(epoch, F.mse_loss(mean, y[64:]).item(), spread.mean().item())
