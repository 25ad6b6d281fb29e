# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        return self.fc(self.drop(x.mean(2)))


def run_epoch(model, loader, optimizer=None):
    training = optimizer is not None
    model.train(training)
    total = 0.0
    with torch.set_grad_enabled(training):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item()
    return total / len(loader)


x, y = torch.randn(96, 2, 6), torch.randint(3, (96,))
loaders = {
    "train": DataLoader(TensorDataset(x[:64], y[:64]), batch_size=16, shuffle=True),
    "val": DataLoader(TensorDataset(x[64:], y[64:]), batch_size=16),
}
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    print(epoch, run_epoch(model, loaders["train"], optimizer), run_epoch(model, loaders["val"]))

for _epoch in range(3):
    for phase in ("train", "val"):
        if phase == "train":
            model.train()
        else:
            model.eval()
        for inputs, labels in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                logits = model(inputs)
                loss = F.cross_entropy(logits, labels)
            if phase == "train":
                loss.backward()
                optimizer.step()
