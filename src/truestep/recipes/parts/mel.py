# SPDX-License-Identifier: Apache-2.0
"""The log-mel spectrogram that a vocoder is given."""

import math

import torch
from torch import Tensor, nn


class LogMel(nn.Module):
    """Waveforms (batch, samples) to log magnitudes (batch, mels, samples / hop_size), in triangular bands of the mel scale.

    A frame is centred on the middle of its hop, so that frames and samples begin and end together.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, mels: int, rate: int, *, hop_size: int = 64, fft_size: int = 512) -> None:
        super().__init__()
        self.hop_size, self.fft_size = hop_size, fft_size
        self.register_buffer("window", torch.hann_window(fft_size), persistent=False)
        self.register_buffer("filters", _mel_filter_bank(mels, rate, fft_size), persistent=False)

    def forward(self, waves: Tensor) -> Tensor:
        """Return the spectrogram."""
        margin = (self.fft_size - self.hop_size) // 2
        frames = nn.functional.pad(waves, (margin, margin)).unfold(1, self.fft_size, self.hop_size)
        magnitudes: Tensor = torch.fft.rfft(frames * self.window).abs()
        return (magnitudes @ self.filters).clamp(min=1e-4).log().transpose(1, 2)


def _mel_filter_bank(mels: int, rate: int, fft_size: int) -> Tensor:
    """Return (frequencies, mels): triangles at even distances on O'Shaughnessy's scale, 2595 lg(1 + f / 700)."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, mels + 2) / 2595) - 1)
    frequency = torch.linspace(0, rate / 2, fft_size // 2 + 1)[:, None]
    rising = (frequency - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequency) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)
