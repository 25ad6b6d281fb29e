# SPDX-License-Identifier: Apache-2.0
"""Seventeen architectures, each with its parameters and multiply-adds by formulas that know nothing of torch's counter.

Counted: products of matrices and convolutions, one multiply-add for each product. A bias, a normalisation, an activation and a
softmax cost nothing. Attention over `q` queries and `k` keys of width `d` costs 2·q·k·d, also where it is causal. A formula adds
up (parameters, multiply-adds) of layers as a reader of the paper would.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence


class Cost(tuple):
    """Parameters and multiply-adds; costs add up."""

    __slots__ = ()

    def __new__(cls, parameters=0, multiply_adds=0):
        return super().__new__(cls, (parameters, multiply_adds))

    def __add__(self, other):
        return Cost(self[0] + other[0], self[1] + other[1])

    def __radd__(self, other):
        return self

    def times(self, number):
        return Cost(self[0] * number, self[1] * number)

    def called(self, times):
        return Cost(self[0], self[1] * times)


def linear(a, b, rows, *, bias=True):
    return Cost(a * b + b * bias, a * b * rows)


def conv(a, b, kernel, places, *, groups=1, bias=False):
    """`places`: output positions (for a transposed convolution input positions), examples included; `kernel`: its area."""
    return Cost(a * b * kernel // groups + b * bias, a * b * kernel // groups * places)


def norm(channels):
    return Cost(2 * channels)


@dataclass(frozen=True)
class Architecture:
    make: Callable[[], nn.Module]
    batch: Callable[[], Any]
    cost: Cost


ALL: dict[str, Architecture] = {}


def add(name, make, batch, cost):
    ALL[name] = Architecture(make, batch, cost)


def conv_norm(a, b, kernel, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(a, b, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(b)
    )


# --- multi-layer perceptron ---------------------------------------------------------------------------------------
add(
    "MLP",
    lambda: nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)),
    lambda: torch.zeros(8, 784),
    linear(784, 300, 8) + linear(300, 100, 8) + linear(100, 10, 8),
)


# --- ResNet-50 (He et al., 2015) ----------------------------------------------------------------------------------
class Bottleneck(nn.Module):
    def __init__(self, a, width, stride):
        super().__init__()
        b = 4 * width
        self.body = nn.Sequential(
            conv_norm(a, width, 1),
            nn.ReLU(),
            conv_norm(width, width, 3, stride),
            nn.ReLU(),
            conv_norm(width, b, 1),
        )
        self.shortcut = conv_norm(a, b, 1, stride) if stride != 1 or a != b else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


STAGES = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))  # width, blocks, side of the output at 224


def resnet50():
    layers, a = [conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, side in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(a, width, 2 if block == 0 and side < 56 else 1))
            a = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def resnet50_cost():
    cost, a = conv(3, 64, 49, 112**2) + norm(64), 64
    for width, blocks, side in STAGES:
        for block in range(blocks):
            before = (
                side * 2 if block == 0 and side < 56 else side
            )  # the first product comes before the stride
            b = 4 * width
            cost += conv(a, width, 1, before**2) + conv(width, width, 9, side**2) + conv(width, b, 1, side**2)
            cost += norm(width) + norm(width) + norm(b)
            cost += conv(a, b, 1, side**2) + norm(b) if block == 0 else Cost()
            a = b
    return cost + linear(2048, 1000, 1)


add("ResNet-50", resnet50, lambda: torch.zeros(1, 3, 224, 224), resnet50_cost())


# --- DenseNet-121 (Huang et al., 2017) ----------------------------------------------------------------------------
class DenseLayer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(a), nn.ReLU(), nn.Conv2d(a, 128, 1, bias=False),
            nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 32, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x):
        return torch.cat([x, self.body(x)], 1)


DENSE = ((6, 56), (12, 28), (24, 14), (16, 7))


def densenet121():
    layers, a = [conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for blocks, side in DENSE:
        for _ in range(blocks):
            layers.append(DenseLayer(a))
            a += 32
        layers.append(nn.BatchNorm2d(a))
        if side > 7:
            layers += [nn.ReLU(), nn.Conv2d(a, a // 2, 1, bias=False), nn.AvgPool2d(2)]
            a //= 2
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


def densenet121_cost():
    cost, a = conv(3, 64, 49, 112**2) + norm(64), 64
    for blocks, side in DENSE:
        for _ in range(blocks):
            cost += norm(a) + conv(a, 128, 1, side**2) + norm(128) + conv(128, 32, 9, side**2)
            a += 32
        cost += norm(a)
        if side > 7:
            cost += conv(a, a // 2, 1, side**2)
            a //= 2
    return cost + linear(1024, 1000, 1)


add("DenseNet-121", densenet121, lambda: torch.zeros(1, 3, 224, 224), densenet121_cost())


# --- MobileNet (Howard et al., 2017) ------------------------------------------------------------------------------
SEPARABLE = (
    (32, 64, 1, 112), (64, 128, 2, 56), (128, 128, 1, 56), (128, 256, 2, 28), (256, 256, 1, 28), (256, 512, 2, 14),
    *((512, 512, 1, 14),) * 5, (512, 1024, 2, 7), (1024, 1024, 1, 7),
)  # fmt: skip


def mobilenet():
    layers = [conv_norm(3, 32, 3, 2), nn.ReLU()]
    for a, b, stride, _ in SEPARABLE:
        layers += [conv_norm(a, a, 3, stride, groups=a), nn.ReLU(), conv_norm(a, b, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


add(
    "MobileNet",
    mobilenet,
    lambda: torch.zeros(1, 3, 224, 224),
    sum(
        (
            conv(a, a, 9, side**2, groups=a) + norm(a) + conv(a, b, 1, side**2) + norm(b)
            for a, b, _, side in SEPARABLE
        ),
        conv(3, 32, 9, 112**2) + norm(32) + linear(1024, 1000, 1),
    ),
)


# --- U-Net (Ronneberger et al., 2015), two levels -----------------------------------------------------------------
def two_convolutions(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = two_convolutions(1, 16), two_convolutions(16, 32)
        self.bottom = two_convolutions(32, 64)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.join2, self.join1 = two_convolutions(64, 32), two_convolutions(32, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.up2(self.bottom(F.max_pool2d(second, 2)))
        x = self.up1(self.join2(torch.cat([x, second], 1)))
        return self.head(self.join1(torch.cat([x, first], 1)))


def double(a, b, places):
    return conv(a, b, 9, places, bias=True) + conv(b, b, 9, places, bias=True)


add(
    "U-Net",
    UNet,
    lambda: torch.zeros(2, 1, 64, 64),
    double(1, 16, 2 * 64**2) + double(16, 32, 2 * 32**2) + double(32, 64, 2 * 16**2)
    + conv(64, 32, 4, 2 * 16**2, bias=True) + double(64, 32, 2 * 32**2)
    + conv(32, 16, 4, 2 * 32**2, bias=True) + double(32, 16, 2 * 64**2) + conv(16, 2, 1, 2 * 64**2, bias=True),
)  # fmt: skip


# --- ConvNeXt (Liu et al., 2022), two stages ----------------------------------------------------------------------
class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        hidden = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.narrow(F.gelu(self.wide(hidden)))).permute(0, 3, 1, 2)


def convnext_block(width, places):
    cost = conv(width, width, 49, places, groups=width, bias=True) + norm(width) + Cost(width)
    return cost + linear(width, 4 * width, places) + linear(4 * width, width, places)


add(
    "ConvNeXt",
    lambda: nn.Sequential(
        nn.Conv2d(3, 48, 4, 4), *(ConvNeXtBlock(48) for _ in range(3)),
        nn.GroupNorm(1, 48), nn.Conv2d(48, 96, 2, 2), *(ConvNeXtBlock(96) for _ in range(3)),
    ),
    lambda: torch.zeros(2, 3, 64, 64),
    conv(3, 48, 16, 2 * 16**2, bias=True) + convnext_block(48, 2 * 16**2).times(3)
    + norm(48) + conv(48, 96, 4, 2 * 8**2, bias=True) + convnext_block(96, 2 * 8**2).times(3),
)  # fmt: skip


# --- transposed, dilated, grouped and one-dimensional convolutions ------------------------------------------------
add(
    "transposed and dilated",
    lambda: nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=2, dilation=2), nn.ConvTranspose2d(8, 6, 4, 2, 1, groups=2), nn.Flatten(2),
        nn.Conv1d(6, 5, 5, padding=2), nn.ConvTranspose1d(5, 3, 2, 2, bias=False),
    ),
    lambda: torch.zeros(2, 4, 12, 12),
    conv(4, 8, 9, 2 * 144, bias=True) + conv(8, 6, 16, 2 * 144, groups=2, bias=True)
    + conv(6, 5, 5, 2 * 576, bias=True) + conv(5, 3, 2, 2 * 576),
)  # fmt: skip


# --- recurrences --------------------------------------------------------------------------------------------------
def recurrent(gates, a, hidden, steps):
    """One direction of one layer; `steps`: time steps of all examples together."""
    return Cost(gates * hidden * (a + hidden + 2), gates * hidden * (a + hidden) * steps)


add(
    "bidirectional LSTM",
    lambda: nn.LSTM(20, 32, num_layers=2, bidirectional=True, batch_first=True),
    lambda: torch.zeros(4, 15, 20),
    recurrent(4, 20, 32, 60).times(2) + recurrent(4, 64, 32, 60).times(2),
)


class PackedGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru, self.head = (
            nn.Embedding(50, 16),
            nn.GRU(16, 24, batch_first=True),
            nn.Linear(24, 3),
        )

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.gru(packed)[1][-1])


add(
    "packed GRU",
    PackedGRU,
    lambda: (torch.zeros(3, 9, dtype=torch.long), torch.tensor([9, 4, 6])),
    Cost(50 * 16) + recurrent(3, 16, 24, 9 + 4 + 6) + linear(24, 3, 3),
)


# --- attention ----------------------------------------------------------------------------------------------------
def attention(width, queries, keys, examples):
    """Four projections with biases, then scores and their mix."""
    cost = linear(width, width, examples * queries).times(2) + linear(width, width, examples * keys).times(2)
    return cost + Cost(0, 2 * queries * keys * width * examples)


def feed_forward(width, wide, rows):
    return linear(width, wide, rows) + linear(wide, width, rows)


def encoder_layer(width, wide, length, examples):
    return (
        attention(width, length, length, examples)
        + feed_forward(width, wide, examples * length)
        + norm(width).times(2)
    )


add(
    "encoder-decoder",
    lambda: nn.Transformer(32, 4, 2, 2, 64, batch_first=True),
    lambda: (torch.zeros(3, 10, 32), torch.zeros(3, 7, 32)),
    encoder_layer(32, 64, 10, 3).times(2) + norm(32)
    + (encoder_layer(32, 64, 7, 3) + attention(32, 7, 10, 3) + norm(32)).times(2) + norm(32),
)  # fmt: skip


class TiedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(200, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 200, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layer(self.embedding(tokens), mask, is_causal=True))


add(
    "tied embeddings",
    TiedModel,
    lambda: torch.zeros(2, 12, dtype=torch.long),
    Cost(200 * 32) + encoder_layer(32, 64, 12, 2) + Cost(0, 32 * 200 * 24),
)


class GroupedQueryAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(64, width, bias=False) for width in (64, 16, 16))
        self.out = nn.Linear(64, 64, bias=False)

    def forward(self, x):
        def heads(y):
            return y.unflatten(-1, (-1, 8)).transpose(1, 2)

        mixed = F.scaled_dot_product_attention(
            heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), is_causal=True, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


add(
    "grouped-query attention",
    GroupedQueryAttention,
    lambda: torch.zeros(2, 20, 64),
    linear(64, 64, 40, bias=False).times(2)
    + linear(64, 16, 40, bias=False).times(2)
    + Cost(0, 2 * 20 * 20 * 64 * 2),
)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 8, 8)
        self.token, self.places = nn.Parameter(torch.zeros(1, 1, 64)), nn.Parameter(torch.zeros(1, 17, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, nn.LayerNorm(64), enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


add(
    "ViT",
    ViT,
    lambda: torch.zeros(2, 3, 32, 32),
    conv(3, 64, 64, 2 * 16, bias=True) + Cost(64 + 17 * 64) + encoder_layer(64, 128, 17, 2).times(3) + norm(64)
    + linear(64, 10, 2),
)  # fmt: skip


class MixtureOfExperts(nn.Module):
    """Every expert sees every row and the router weighs them (a dense mixture)."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4)
        )

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        return sum(weights[..., index, None] * expert(x) for index, expert in enumerate(self.experts))


add(
    "mixture of experts",
    MixtureOfExperts,
    lambda: torch.zeros(3, 5, 32),
    linear(32, 4, 15) + feed_forward(32, 64, 15).times(4),
)


# --- parametrizations, sharing ------------------------------------------------------------------------------------
add(
    "weight norm",
    lambda: nn.Sequential(
        parametrizations.weight_norm(nn.Linear(12, 20)),
        nn.ReLU(),
        parametrizations.weight_norm(nn.Linear(20, 5)),
    ),
    lambda: torch.zeros(6, 12),
    linear(12, 20, 6) + Cost(20) + linear(20, 5, 6) + Cost(5),  # and a length for each row
)


add(
    "spectral norm",
    lambda: nn.Sequential(
        parametrizations.spectral_norm(nn.Conv2d(3, 8, 3)),
        nn.Flatten(),
        parametrizations.spectral_norm(nn.Linear(288, 4)),
    ).eval(),
    lambda: torch.zeros(6, 3, 8, 8),
    # the largest singular value, uᵀWv: a product of each weight with a vector, and a dot product
    conv(3, 8, 9, 6 * 36, bias=True) + linear(288, 4, 6) + Cost(0, 8 * 27 + 8 + 4 * 288 + 4),
)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 16))
        self.head = nn.Bilinear(16, 16, 2)

    def forward(self, first, second):
        return self.head(self.tower(first), self.tower(second))


add(
    "siamese, bilinear",
    Siamese,
    lambda: (torch.zeros(5, 1, 8, 8), torch.zeros(5, 1, 8, 8)),
    (conv(1, 8, 9, 5 * 36, bias=True) + linear(288, 16, 5)).called(2)
    + Cost(2 * 16 * 16 + 2, 5 * 2 * (16 * 16 + 16)),
)
