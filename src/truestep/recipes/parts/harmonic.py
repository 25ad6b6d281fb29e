# SPDX-License-Identifier: Apache-2.0
"""Sounds that are made of harmonics, as voices are: gliding pitch, two resonances, pauses, a little breath."""

import math

import torch
from torch import Tensor

RATE = 8_000
SOUNDS, SECONDS, HARMONICS = 100, 1.024, 24


def harmonic_sounds() -> list[Tensor]:
    """Return the same sounds each time, in [-1, 1]."""
    generator = torch.Generator().manual_seed(0)
    return [_sound(generator) for _ in range(SOUNDS)]


def _sound(generator: torch.Generator) -> Tensor:
    low, high, first, second = torch.rand(4, generator=generator).tolist()
    time = torch.arange(int(SECONDS * RATE)) / RATE
    ends = 100 * 2.5**low, 100 * 2.5**high
    pitch = ends[0] * (ends[1] / ends[0]) ** (time / SECONDS) * (1 + 0.01 * (2 * math.pi * 5 * time).sin())
    phase = 2 * math.pi * pitch.cumsum(0) / RATE
    number = torch.arange(1, HARMONICS + 1)[:, None]
    frequency = number * pitch
    resonance = _peak(frequency, 300 + 600 * first) + 0.5 * _peak(frequency, 1000 + 1500 * second)
    audible = torch.where(frequency < 0.45 * RATE, resonance / number.sqrt(), 0.0)
    voice = (audible * (number * phase).sin()).sum(0)
    loudness = (0.5 - 0.5 * (2 * math.pi * 2 * time / SECONDS).cos()).square()
    breath = 0.003 * torch.randn(len(time), generator=generator)
    sound: Tensor = 0.5 * voice / voice.abs().max() * loudness + breath
    return sound


def _peak(frequency: Tensor, centre: float, width: float = 150.0) -> Tensor:
    return (1 + ((frequency - centre) / width).square()).reciprocal()
