# SPDX-License-Identifier: Apache-2.0
"""The vocoder's generator: gated dilated convolutions that see the spectrogram, as in Parallel WaveGAN, in four bands."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from truestep.nn import SubBands

BANDS = 4


class VocoderLayer(nn.Module):
    """A gated dilated convolution (batch, channels, time) that sees the spectrogram."""

    def __init__(self, channels: int, mels: int, dilation: int) -> None:
        super().__init__()
        self.dilated = nn.Conv1d(channels, 2 * channels, 3, padding=dilation, dilation=dilation)
        self.condition = nn.Conv1d(mels, 2 * channels, 1)
        self.out = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, inputs: Tensor, mel: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs of the next layer, and what skips the rest of them."""
        signal, gate = (self.dilated(inputs) + self.condition(mel)).chunk(2, dim=1)
        residual, skip = self.out(signal.tanh() * gate.sigmoid()).chunk(2, dim=1)
        return (inputs + residual) * 0.5**0.5, skip


class VocoderGenerator(nn.Module):
    """Noise (batch, 4, time / 4) and a log-mel spectrogram (batch, mels, frames) to waveforms (batch, time)."""

    def __init__(self, channels: int, layers: int, mels: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(BANDS, channels, 1)
        self.layers = nn.ModuleList(
            VocoderLayer(channels, mels, 2 ** (number % 4)) for number in range(layers)
        )
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, BANDS, 1))
        self.bands = SubBands(BANDS)

    def forward(self, noise: Tensor, mel: Tensor) -> Tensor:
        """Return sound."""
        mel = F.interpolate(mel, size=noise.shape[-1], mode="linear")
        hidden, skips = self.first(noise), []
        for layer in self.layers:
            hidden, skip = layer(hidden, mel)
            skips.append(skip)
        waves: Tensor = self.bands.inverse(self.last(torch.stack(skips).sum(0)))
        return waves
