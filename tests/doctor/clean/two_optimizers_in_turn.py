# SPDX-License-Identifier: Apache-2.0
import itertools

import torch
from torch import nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 4))

    def forward(self, x):
        return self.layers(x)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 6))

    def forward(self, z):
        return self.layers(z)


encoder, decoder, domain = Encoder(), Decoder(), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
rebuild, tell = nn.L1Loss(), nn.BCEWithLogitsLoss()
autoencoding = torch.optim.Adam(itertools.chain(encoder.parameters(), decoder.parameters()), lr=1e-3)
telling = torch.optim.Adam(domain.parameters(), lr=1e-3)
schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.95) for each in (autoencoding, telling)]
for epoch in range(4):
    for each in (encoder, decoder, domain):
        each.train()
    for _ in range(8):
        source, other = torch.randn(16, 6), torch.randn(16, 6) + 1
        z = encoder(torch.cat([source, other]))
        labels = torch.cat([torch.ones(16, 1), torch.zeros(16, 1)])

        telling.zero_grad()
        tell(domain(z.detach()), labels).backward()
        telling.step()

        domain.requires_grad_(False)
        loss = rebuild(decoder(z), torch.cat([source, other])) + 0.1 * tell(domain(z), 1 - labels)
        autoencoding.zero_grad()
        loss.backward()
        autoencoding.step()
        domain.requires_grad_(True)
    for schedule in schedules:
        schedule.step()
    for each in (encoder, decoder, domain):
        each.eval()
    with torch.no_grad():
        x_val = torch.randn(16, 6)
        print(epoch, rebuild(decoder(encoder(x_val)), x_val).item())
