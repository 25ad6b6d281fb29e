# SPDX-License-Identifier: Apache-2.0
# expect: EVAL047
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
X = torch.randn(500, 10)
Y = X[:, :1] * 2
train, val = TensorDataset(X[:300], Y[:300]), TensorDataset(X[300:], Y[300:])
loaders = {"train": DataLoader(train, 30, shuffle=True), "val": DataLoader(val, 20)}
model = nn.Sequential(nn.Linear(10, 8), nn.ELU(), nn.Linear(8, 1))
opt = torch.optim.Adam(model.parameters())


def run_epoch(phase):
    model.train(phase == "train")
    total = 0.0
    with torch.set_grad_enabled(phase == "train"):
        for inputs, goals in loaders[phase]:
            loss = nn.functional.mse_loss(model(inputs), goals)
            if phase == "train":
                opt.zero_grad()
                loss.backward()
                opt.step()
            total += loss.item() * len(inputs)
            if phase == "val":
                return total / len(inputs)
    return total / len(loaders[phase].dataset)


for epoch in range(4):
    print(run_epoch("train"), run_epoch("val"))
