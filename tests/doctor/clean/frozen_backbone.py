# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)


class Transfer(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.backbone.requires_grad_(False)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 3))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()  # its statistics stay
        return self

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


backbone = nn.Sequential(
    nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
)
data = TensorDataset(torch.randn(96, 3, 8, 8), torch.randint(3, (96,)))
train_set, val_set = random_split(data, [64, 32], generator=torch.Generator().manual_seed(0))
train_loader, val_loader = (
    DataLoader(train_set, batch_size=16, shuffle=True),
    DataLoader(val_set, batch_size=16),
)
model = Transfer(backbone)
optimizer = torch.optim.AdamW(filter(lambda each: each.requires_grad, model.parameters()), lr=1e-3)
for _epoch in range(2):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
    print(right / len(val_set))
model.backbone.requires_grad_(True)
optimizer = torch.optim.AdamW(
    [{"params": model.backbone.parameters(), "lr": 1e-5}, {"params": model.head.parameters(), "lr": 1e-4}]
)
Transfer.forward = lambda self, x: self.head(self.backbone(x))
for _epoch in range(2):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
