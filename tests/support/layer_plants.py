# SPDX-License-Identifier: Apache-2.0
"""Ten small networks that learn, and faults planted in their layers by changing weights alone."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 4


class Functional(nn.Module):
    """Convolutions whose activations are functions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.third, self.head = nn.Linear(8 * 16, 32), nn.Linear(32, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.relu(self.second(x)).flatten(1)
        return self.head(F.relu(self.third(x)))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
            )
            for _ in range(3)
        )
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.lstm = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.LSTM(16, 16, batch_first=True)
        self.middle, self.head = nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.middle(self.lstm(self.into(x.flatten(1).unflatten(1, (8, 8))))[0][:, -1]))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.middle, self.head = nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.into(x.flatten(1).unflatten(1, (8, 8)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.middle(x.mean(1)))


class Line(nn.Module):
    """One-dimensional convolutions: channels stand before positions."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(8, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=1), nn.ReLU()
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.body(x.flatten(1).unflatten(1, (8, 8))).mean(2))


def dense(activation, *widths):
    layers = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(256, CLASSES),
    )  # fmt: skip


def normed():
    layers = [nn.Flatten()]
    for before, after in ((64, 32), (32, 32), (32, 32)):
        layers += [nn.Linear(before, after), nn.LayerNorm(after), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(32, CLASSES))


NETS = {
    "relu": lambda: dense(nn.ReLU, 64, 32, 32, 32),
    "tanh": lambda: dense(nn.Tanh, 64, 32, 32, 32),
    "sigmoid": lambda: dense(nn.Sigmoid, 64, 32, 32),
    "gelu with layer norm": normed,
    "convolutions": convolutional,
    "functions": Functional,
    "residual": Residual,
    "recurrent": Recurrent,
    "attention": Attention,
    "one-dimensional": Line,
}


@dataclass(frozen=True)
class Plant:
    net: str
    fault: str
    layer: str  # whose weights are changed
    named: tuple[str, ...]  # one of these is to be named


def _plant(net, fault, layer, *named):
    return Plant(net, fault, layer, named or (layer,))


DEAD = [
    _plant("relu", "dead", "1", "2"), _plant("relu", "dead", "5", "6"),
    _plant("convolutions", "dead", "0", "1"), _plant("convolutions", "dead", "3", "4"),
    _plant("functions", "dead", "first", "relu before second"), _plant("functions", "dead", "third", "relu before head"),
    _plant("residual", "dead", "blocks.0.1", "blocks.0.2"), _plant("residual", "dead", "blocks.2.1", "blocks.2.2"),
    _plant("recurrent", "dead", "middle.0", "middle.1"), _plant("attention", "dead", "middle.0", "middle.1"),
    _plant("attention", "dead", "blocks.0.linear1", "relu before blocks.0.linear2"),
    _plant("one-dimensional", "dead", "body.0", "body.1"), _plant("one-dimensional", "dead", "body.2", "body.3"),
]  # fmt: skip
SATURATED = [
    _plant("tanh", "saturated", "1", "2"), _plant("tanh", "saturated", "5", "6"),
    _plant("sigmoid", "saturated", "1", "2"), _plant("sigmoid", "saturated", "3", "4"),
    _plant("recurrent", "saturated", "into.0", "into.1"),
]  # fmt: skip
EXPLODING = [
    _plant(net, "exploding", layer)
    for net, layer in (
        ("relu", "1"), ("relu", "5"), ("convolutions", "0"), ("convolutions", "3"), ("functions", "second"),
        ("one-dimensional", "body.0"), ("one-dimensional", "body.2"), ("residual", "blocks.2.3"),
        ("recurrent", "middle.0"), ("attention", "middle.0"),
    )
]  # fmt: skip
VANISHING = [
    _plant("relu", "vanishing", "7", "5"), _plant("relu", "vanishing", "3", "1"), _plant("tanh", "vanishing", "5", "3"),
    _plant("sigmoid", "vanishing", "3", "1"), _plant("convolutions", "vanishing", "6", "3"),
    _plant("functions", "vanishing", "third", "second"), _plant("recurrent", "vanishing", "middle.0", "lstm"),
    _plant("attention", "vanishing", "middle.0", "into"), _plant("one-dimensional", "vanishing", "body.2", "body.0"),
    _plant("residual", "vanishing", "head", "stem"),
]  # fmt: skip
PLANTS = [*DEAD, *SATURATED, *EXPLODING, *VANISHING]


@torch.no_grad()
def plant(net: nn.Module, planted: Plant) -> None:
    """Change one layer's weights so that it has the fault."""
    layer: Any = net.get_submodule(planted.layer)
    if planted.fault == "dead":
        layer.bias.fill_(-1000.0)
    elif planted.fault == "saturated":
        layer.weight.mul_(1000.0)
    elif planted.fault == "exploding":
        layer.weight.mul_(1e8)
    else:
        layer.weight.mul_(1e-7)


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of 8 × 8 with one bright quarter among noise, and which it is."""
    labels = torch.randint(0, CLASSES, (16,), generator=generator)
    images = 0.5 * torch.randn(16, 1, 8, 8, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = 4 * (label // 2), 4 * (label % 2)
        image[0, top : top + 4, left : left + 4] += 1
    return images, labels
