# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1))
        self.mean, self.log_variance = nn.Linear(32, 2), nn.Linear(32, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))

    def encode(self, x):
        features = self.body(x)
        return self.mean(features), self.log_variance(features)

    def reparameterize(self, mean, log_variance):
        if not self.training:
            return mean
        return mean + torch.randn_like(mean) * (0.5 * log_variance).exp()

    def decode(self, z):
        return self.decoder(z)

    def forward(self, x):
        mean, log_variance = self.encode(x)
        return self.decode(self.reparameterize(mean, log_variance)), mean, log_variance


def loss_of(x, rebuilt, mean, log_variance):
    divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
    return F.mse_loss(rebuilt, x, reduction="sum") / len(x) + divergence


train_loader = DataLoader(TensorDataset(torch.randn(128, 8)), batch_size=16, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=16)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    model.train()
    for (x,) in train_loader:
        optimizer.zero_grad()
        loss = loss_of(x, *model(x))
        loss.backward()
        optimizer.step()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for (x,) in test_loader:
            total += loss_of(x, *model(x)).item() * len(x)
            codes, _ = model.encode(x)
        drawn = model.decode(torch.randn(4, 2))
    print(epoch, total / 32, codes.std().item(), drawn.shape)
