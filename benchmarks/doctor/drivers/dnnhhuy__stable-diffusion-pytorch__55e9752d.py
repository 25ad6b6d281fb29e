# SPDX-License-Identifier: Apache-2.0
"""The loss of StableDiffusion with small networks for its parts, on made-up pictures and labels."""

import torch
from absent import bare_packages, stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bare_packages("models")
stand_ins(
    "models.unet",
    "models.vae",
    "models.cond_encoder",
    "models.clip",
    "models.lora",
    "torchvision",
    "PIL",
    "utils",
    "utils.utils",
)
stand_ins(
    "models.ddpm",
    "models.ddim",
    "models.class_encoder",
    "models.sampler",
    "models.sampler.ddpm",
    "models.sampler.ddim",
)
from models import diffusion


class Sampler:
    def _sample_timestep(self, count):
        return torch.randint(0, 100, (count,))

    def forward_process(self, x, timesteps):
        noise, kept = torch.randn_like(x), (1 - timesteps / 100).view(-1, 1, 1, 1)
        return kept.sqrt() * x + (1 - kept).sqrt() * noise, noise


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Conv2d(3, 8, 2, 2), nn.ConvTranspose2d(4, 3, 2, 2)

    def encode(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        stdev = (0.5 * log_variance).exp()
        return mean + stdev * torch.randn_like(stdev), mean, stdev

    def decode(self, z):
        return self.decoder(z)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(5, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 4, 3, padding=1))

    def forward(self, x, timesteps, cond):
        return self.layers(
            torch.cat([x, cond[:, :, None, None] + timesteps.view(-1, 1, 1, 1) / 100 + 0 * x[:, :1]], 1)
        )


diffusion.DDPMSampler = Sampler
model = diffusion.StableDiffusion.__new__(diffusion.StableDiffusion)
nn.Module.__init__(model)
model.vae, model.unet, model.cond_encoder = Vae(), Unet(), nn.Embedding(5, 1)
torch.manual_seed(0)
labels = torch.randint(0, 5, (320,))
pictures = labels.view(-1, 1, 1, 1) / 5 * torch.ones(320, 3, 8, 8) + 0.1 * torch.randn(320, 3, 8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.MSELoss()
for epoch in range(3):
    for picture, label in DataLoader(TensorDataset(pictures, labels), batch_size=16, shuffle=True):
        loss = model(picture, label, loss_fn)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
