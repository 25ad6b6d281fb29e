# SPDX-License-Identifier: Apache-2.0
"""Splitting waveforms into bands of equal width by a pseudo-quadrature mirror filter bank."""

import math
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from truestep.core.errors import BatchError, OptionError


class SubBands(nn.Module):
    """Split waveforms into `num_bands` bands, each sampled `num_bands` times more slowly.

    A cosine-modulated bank of one Kaiser-windowed low-pass filter (Nguyen, 1994, "Near-perfect-reconstruction pseudo-QMF banks";
    Lin & Vaidyanathan, 1998, "A Kaiser window approach for the design of prototype filters"). `inverse` puts the bands together
    again, nearly perfectly. The defaults are those of Multi-band MelGAN (Yang et al., 2020, arXiv:2005.05106) for four bands.

    Args:
        num_bands: how many.
        taps: order of the filter, an even number: it has taps + 1 coefficients.
        cutoff: of the low-pass filter, as a share of half the sampling rate; about 0.5 / num_bands and a little more.
        beta: of the Kaiser window; a larger one suppresses neighbouring bands more and widens the transition.
    """

    def __init__(
        self, num_bands: int = 4, *, taps: int = 62, cutoff: float = 0.142, beta: float = 9.0
    ) -> None:
        super().__init__()
        if num_bands < 2:
            raise OptionError(f"num_bands={num_bands}: give 2 at least; one band is the waveform itself.")
        if taps < 2 or taps % 2:
            raise OptionError(
                f"taps={taps}: give an even number of at least 2, so that the filter has a middle, such as 62."
            )
        if not 0 < cutoff < 1:
            raise OptionError(
                f"cutoff={cutoff} is a share of half the sampling rate, between 0 and 1; for {num_bands} bands about "
                f"{0.57 / num_bands:.3f}."
            )
        self.num_bands, self.taps, self.cutoff, self.beta = num_bands, taps, cutoff, beta

    def forward(self, waves: Tensor) -> Tensor:
        """Return the bands of waveforms (batch, [channels,] samples): (batch, channels · bands, samples / bands)."""
        if waves.shape[-1] < self.num_bands:
            raise BatchError(
                f"Waveforms of {waves.shape[-1]} samples can't be split into {self.num_bands} bands; each needs a sample."
            )
        flat = F.pad(waves.flatten(0, -2)[:, None], (self.taps // 2, self.taps // 2))
        bands = F.conv1d(flat, self._filters_like(waves)[0], stride=self.num_bands)
        return bands.reshape(len(waves), -1, bands.shape[-1])

    def inverse(self, bands: Tensor) -> Tensor:
        """Return waveforms (batch, samples) of what `forward` made of them."""
        if bands.ndim != 3 or bands.shape[1] != self.num_bands:
            raise BatchError(
                f"bands has shape {tuple(bands.shape)}; expected (batch, {self.num_bands}, samples), as forward gives."
            )
        spread = bands.new_zeros(*bands.shape, self.num_bands)
        spread[..., 0] = bands * self.num_bands
        padded = F.pad(spread.flatten(2), (self.taps // 2, self.taps // 2))
        return F.conv1d(padded, self._filters_like(bands)[1])[:, 0]

    def lengths(self, lengths: Tensor) -> Tensor:
        """Return how many samples a band has of waveforms of these lengths."""
        return (lengths + self.num_bands - 1) // self.num_bands

    def _filters_like(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return _filter_bank(self.num_bands, self.taps, self.cutoff, self.beta, like.dtype, like.device)


@lru_cache(maxsize=64)
def _filter_bank(num_bands: int, taps: int, cutoff: float, beta: float, *where: Any) -> tuple[Tensor, Tensor]:
    """Return analysis (bands, 1, taps + 1) and synthesis (1, bands, taps + 1) filters, made once for each type and device."""
    dtype, device = where
    time = torch.arange(taps + 1, dtype=torch.float64) - taps / 2
    window = torch.kaiser_window(taps + 1, periodic=False, beta=beta, dtype=torch.float64)
    low_pass = cutoff * torch.sinc(cutoff * time) * window
    band = torch.arange(num_bands, dtype=torch.float64)[:, None]
    angle = (2 * band + 1) * math.pi / (2 * num_bands) * time
    phase = (-1.0) ** band * math.pi / 4
    analysis, synthesis = 2 * low_pass * (angle + phase).cos(), 2 * low_pass * (angle - phase).cos()
    return analysis[:, None].to(device, dtype), synthesis[None].to(device, dtype)
