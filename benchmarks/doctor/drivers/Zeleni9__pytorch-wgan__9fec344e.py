# SPDX-License-Identifier: Apache-2.0
"""WGAN_GP.train() on made-up digits of 32 by 32, with small networks in the place of its own."""

import types

import torch
from absent import stand_ins
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

stand_ins("utils", "utils.tensorboard_logger", "matplotlib", "matplotlib.pyplot", "torchvision")
from models import wgan_gradient_penalty as wgan


class Generator(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(100, 16, 8), nn.ReLU(), nn.ConvTranspose2d(16, channels, 4, 4), nn.Tanh()
        )

    def forward(self, x):
        return self.layers(x)


class Discriminator(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(channels, 8, 4, 4), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 8))

    def forward(self, x):
        return self.layers(x)


wgan.Generator, wgan.Discriminator = Generator, Discriminator
torch.manual_seed(0)
digits = torch.rand(640, 1, 1, 1).expand(640, 1, 32, 32) + 0.1 * torch.randn(640, 1, 32, 32)
loader = DataLoader(TensorDataset(digits, torch.zeros(640)), batch_size=64, shuffle=True, drop_last=True)
wgan.WGAN_GP(types.SimpleNamespace(channels=1, cuda=False, generator_iters=20)).train(loader)
