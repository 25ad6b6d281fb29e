# SPDX-License-Identifier: Apache-2.0
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def init_weights(module):
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 16 * 4 * 4)
        self.body = nn.Sequential(
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 1, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.body(self.project(z).view(-1, 16, 4, 4))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Dropout2d(0.25), nn.Flatten()
        )
        self.head = nn.Linear(8 * 4 * 4, 1)

    def forward(self, images):
        return self.head(self.body(images))


generator, critic = Generator().apply(init_weights), Critic().apply(init_weights)
optimizer_g = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
optimizer_c = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
loader = DataLoader(
    TensorDataset(torch.rand(160, 1, 8, 8) * 2 - 1), batch_size=16, shuffle=True, drop_last=True
)
fixed = torch.randn(4, 8)
for _epoch in range(3):
    for index, (real,) in enumerate(loader):
        optimizer_c.zero_grad()
        fake = generator(torch.randn(len(real), 8)).detach()
        loss_c = critic(fake).mean() - critic(real).mean()
        loss_c.backward()
        optimizer_c.step()
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.clamp_(-0.01, 0.01)
        if index % 5 == 0:
            optimizer_g.zero_grad()
            loss_g = -critic(generator(torch.randn(len(real), 8))).mean()
            loss_g.backward()
            optimizer_g.step()
    generator.eval()
    with torch.no_grad():
        pictures = generator(fixed)
    generator.train()
