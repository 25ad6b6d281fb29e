# SPDX-License-Identifier: Apache-2.0
# clean
import torch, copy
from torch import nn


class Module(nn.Module):
    def log(self, name, value, prog_bar=False):
        self.__dict__.setdefault("_logged", {}).setdefault(name, []).append(float(value))


class LitGAN(Module):
    def __init__(self, latent=8):
        super().__init__()
        self.latent = latent
        self.generator = nn.Sequential(nn.Linear(latent, 32), nn.LeakyReLU(0.2), nn.Linear(32, 10), nn.Tanh())
        self.discriminator = nn.Sequential(
            nn.Linear(10, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid()
        )
        self.ema = copy.deepcopy(self.generator).requires_grad_(False)

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, y_hat, y):
        return nn.functional.binary_cross_entropy(y_hat, y)

    def configure_optimizers(self):
        return [
            torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999))
            for m in (self.generator, self.discriminator)
        ]

    def training_step(self, batch, idx, optimizers):
        g, d = optimizers
        imgs = batch
        z = torch.randn(len(imgs), self.latent)
        loss_g = self.adversarial_loss(self.discriminator(self(z)), torch.ones(len(imgs), 1))
        self.log("g_loss", loss_g, prog_bar=True)
        g.zero_grad()
        loss_g.backward()
        g.step()
        real = self.adversarial_loss(self.discriminator(imgs), torch.ones(len(imgs), 1))
        fake = self.adversarial_loss(self.discriminator(self(z).detach()), torch.zeros(len(imgs), 1))
        loss_d = (real + fake) / 2
        d.zero_grad()
        loss_d.backward()
        d.step()
        with torch.no_grad():
            for a, b in zip(self.ema.parameters(), self.generator.parameters()):
                a.lerp_(b, 0.01)


class Fit:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, m, dl):
        opts = m.configure_optimizers()
        for e in range(self.max_epochs):
            m.train()
            for i, b in enumerate(dl):
                m.training_step(b, i, opts)


torch.manual_seed(0)
Fit(2).fit(
    LitGAN(),
    torch.utils.data.DataLoader(torch.randn(320, 10).tanh(), batch_size=16, shuffle=True, drop_last=True),
)
