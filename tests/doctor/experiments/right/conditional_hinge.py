# SPDX-License-Identifier: Apache-2.0
"""A class-conditional GAN with hinge losses and spectral normalisation, in a class of its own."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, size=120):
        self.labels = torch.arange(size) % 3
        self.images = torch.randn(size, 1, 8, 8) * 0.1
        for i, label in enumerate(self.labels):
            self.images[i, 0, label : label + 4, label : label + 4] += 1.0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"image": self.images[i], "label": int(self.labels[i])}


class G(nn.Module):
    def __init__(self, nz=6, classes=3):
        super().__init__()
        self.embed = nn.Embedding(classes, nz)
        self.fc = nn.Linear(2 * nz, 8 * 4 * 4)
        self.bn = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, z, y):
        h = self.fc(torch.cat([z, self.embed(y)], 1)).view(-1, 8, 4, 4)
        return torch.tanh(self.up(F.relu(self.bn(h))))


class D(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv = spectral_norm(nn.Conv2d(1, 8, 4, 2, 1))
        self.fc = spectral_norm(nn.Linear(8, 1))
        self.embed = spectral_norm(nn.Embedding(classes, 8))

    def forward(self, x, y):
        h = F.leaky_relu(self.conv(x), 0.1).sum(dim=(2, 3))
        return self.fc(h) + (self.embed(y) * h).sum(1, keepdim=True)


class Trainer:
    def __init__(self):
        torch.manual_seed(3)
        self.netG, self.netD = G(), D()
        self.optG = torch.optim.Adam(self.netG.parameters(), 2e-4, betas=(0.0, 0.9))
        self.optD = torch.optim.Adam(self.netD.parameters(), 4e-4, betas=(0.0, 0.9))
        self.loader = DataLoader(Shapes(), batch_size=10, shuffle=True)

    def d_step(self, x, y):
        z = torch.randn(x.size(0), 6)
        with torch.no_grad():
            fake = self.netG(z, y)
        loss = F.relu(1.0 - self.netD(x, y)).mean() + F.relu(1.0 + self.netD(fake, y)).mean()
        self.optD.zero_grad()
        loss.backward()
        self.optD.step()
        return loss.item()

    def g_step(self, x, y):
        for p in self.netD.parameters():
            p.requires_grad_(False)
        loss = -self.netD(self.netG(torch.randn(x.size(0), 6), y), y).mean()
        self.optG.zero_grad()
        loss.backward()
        self.optG.step()
        for p in self.netD.parameters():
            p.requires_grad_(True)
        return loss.item()

    def run(self):
        for epoch in range(2):
            for batch in self.loader:
                x, y = batch["image"], batch["label"]
                d, g = self.d_step(x, y), self.g_step(x, y)
            print(f"epoch {epoch}: d {d:.4f} g {g:.4f}")


Trainer().run()
