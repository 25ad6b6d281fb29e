# SPDX-License-Identifier: Apache-2.0
"""Losses between spectra of waveforms, per example."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from truestep.core.errors import BatchError, OptionError
from truestep.nn.sub_bands import SubBands


@dataclass(frozen=True)
class Resolution:
    """One short-time Fourier transform; all three in samples."""

    fft_size: int
    hop_size: int
    window_size: int

    def __post_init__(self) -> None:
        if not 1 <= self.hop_size <= self.window_size <= self.fft_size:
            raise OptionError(
                f"{self}: samples between two windows would be lost, or a window would not fit. Give "
                "1 <= hop_size <= window_size <= fft_size, such as (1024, 120, 600)."
            )


# Yamamoto, Song & Kim, 2020 (arXiv:1910.11480), table 2, at 24 kHz
FULL_BAND = (Resolution(1024, 120, 600), Resolution(2048, 240, 1200), Resolution(512, 50, 240))
# Yang et al., 2020 (arXiv:2005.05106), for four bands of 24 kHz
SUB_BAND = (Resolution(384, 30, 150), Resolution(683, 60, 300), Resolution(171, 10, 60))


class SpectralLoss(NamedTuple):
    """What a spectral loss gives; every tensor has shape (batch,).

    Attributes:
        values: the loss of each example.
        terms: its parts by name, to be logged: `ts.weighted(loss.values, **loss.terms)`.
    """

    values: Tensor
    terms: dict[str, Tensor]


class MultiResolutionSTFTLoss(nn.Module):
    """Compare the magnitudes of two waveforms' short-time Fourier transforms at several resolutions.

    The sum of spectral convergence, ‖target - predicted‖ / ‖target‖, and of the mean difference of log magnitudes, averaged over
    resolutions (Yamamoto, Song & Kim, 2020, arXiv:1910.11480). Both are taken for each example. The usual code takes the norm over
    the whole batch, so that loud examples hide quiet ones, and a mean over parts is not the loss of the batch.

    Computed in float32, also under autocast (float64 stays). Waveforms are padded with zeros at both ends, so the loss of an
    example does not depend on what it is batched with. An example whose target is silent has no spectral convergence; that term
    is 0 there.

    Args:
        resolutions: (fft_size, hop_size, window_size) of each transform, in samples; the paper's by default, which suit 24 kHz.
        magnitude_floor: magnitudes are clamped to it before root and logarithm.
        sub_bands: compare the bands that these filters give instead of the waveform; the resolutions are then in samples of a
            band, by default those of Yang et al., 2020.
    """

    def __init__(
        self,
        resolutions: Sequence[Resolution | tuple[int, int, int]] | None = None,
        *,
        magnitude_floor: float = 1e-7,
        sub_bands: SubBands | None = None,
    ) -> None:
        super().__init__()
        if not magnitude_floor > 0:
            raise OptionError(
                f"magnitude_floor={magnitude_floor}: the logarithm of a silent frame would be minus infinity. Give a "
                "positive number, such as 1e-7."
            )
        chosen = resolutions if resolutions is not None else (SUB_BAND if sub_bands else FULL_BAND)
        self.resolutions = tuple(
            each if isinstance(each, Resolution) else Resolution(*each) for each in chosen
        )
        if not self.resolutions:
            raise OptionError(
                "resolutions is empty: there is nothing to compare. Give one at least, or leave it out."
            )
        self.magnitude_floor = magnitude_floor
        self.sub_bands = sub_bands

    def forward(self, predicted: Tensor, target: Tensor, lengths: Tensor | None = None) -> SpectralLoss:
        """Return the loss of each example and its terms.

        Args:
            predicted: waveforms, (batch, samples) or (batch, channels, samples).
            target: of the same shape; it gets no gradient.
            lengths: (batch,) how many samples of each row are sound; the rest is padding and does not count.
        """
        _check_waveforms(predicted, target)
        with torch.autocast(predicted.device.type, enabled=False):
            predicted, target = _at_least_float32(predicted), _at_least_float32(target.detach())
            if lengths is not None:
                lengths = _checked_lengths(lengths, predicted)
                predicted, target = (_zero_padding_samples(waves, lengths) for waves in (predicted, target))
            if self.sub_bands is not None:
                predicted, target = self.sub_bands(predicted), self.sub_bands(target)
            if self.sub_bands is not None and lengths is not None:
                lengths = self.sub_bands.lengths(lengths)
                predicted, target = (_zero_padding_samples(bands, lengths) for bands in (predicted, target))
            pairs = [self._spectral_loss_terms(each, predicted, target, lengths) for each in self.resolutions]
        convergence, log_magnitude = (torch.stack(terms).mean(0) for terms in zip(*pairs, strict=True))
        terms = {"spectral_convergence": convergence.detach(), "log_magnitude": log_magnitude.detach()}
        return SpectralLoss(convergence + log_magnitude, terms)

    def _spectral_loss_terms(
        self, resolution: Resolution, predicted: Tensor, target: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return spectral convergence and log magnitude of each example."""
        of_predicted = self._stft_magnitudes(resolution, predicted)
        of_target = self._stft_magnitudes(resolution, target)
        frames = of_target.shape[-1]
        mask = of_target.new_ones(len(of_target), 1, frames)
        if lengths is not None:
            # Frames are centred on multiples of the hop: the last one of an example alone is at length // hop.
            last = (lengths // resolution.hop_size)[:, None]
            mask = (torch.arange(frames, device=mask.device) <= last).to(mask.dtype)[:, None]
        counted = mask.expand_as(of_target).flatten(1).sum(1)
        difference = torch.linalg.vector_norm(((of_target - of_predicted) * mask).flatten(1), dim=1)
        loudness = torch.linalg.vector_norm((of_target * mask).flatten(1), dim=1)
        is_silent = (of_target * mask).flatten(1).amax(1) <= self.magnitude_floor
        convergence = torch.where(is_silent, torch.zeros_like(difference), difference / loudness)
        distance = (of_target.log() - of_predicted.log()).abs() * mask
        return convergence, distance.flatten(1).sum(1) / counted

    def _stft_magnitudes(self, resolution: Resolution, waves: Tensor) -> Tensor:
        """Return magnitudes of shape (batch, channels · frequencies, frames), at least the floor."""
        spectrum = torch.stft(
            waves.flatten(0, -2),
            resolution.fft_size,
            resolution.hop_size,
            resolution.window_size,
            _hann_window(resolution.window_size, waves.dtype, waves.device),
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        power = spectrum.real.square() + spectrum.imag.square()
        # Clamped before the root, whose derivative is infinite at 0.
        magnitudes = power.clamp(min=self.magnitude_floor**2).sqrt()
        return magnitudes.reshape(len(waves), -1, magnitudes.shape[-1])


@lru_cache(maxsize=64)
def _hann_window(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a window made once for each type and device; as a buffer it would be rounded by `half()`."""
    return torch.hann_window(size, dtype=dtype, device=device)


def _at_least_float32(waves: Tensor) -> Tensor:
    return waves if waves.dtype == torch.float64 else waves.float()


def _zero_padding_samples(waves: Tensor, lengths: Tensor) -> Tensor:
    """Return waves (batch, ..., samples) with zeros from each row's length on."""
    is_padding = torch.arange(waves.shape[-1], device=waves.device) >= lengths[:, None]
    return waves.masked_fill(is_padding.view(len(waves), *[1] * (waves.ndim - 2), -1), 0.0)


def _check_waveforms(predicted: Tensor, target: Tensor) -> None:
    if predicted.shape != target.shape:
        raise BatchError(
            f"predicted has shape {tuple(predicted.shape)} and target {tuple(target.shape)}. They would be compared at other "
            "times, or broadcast; cut both to the same number of samples: predicted[..., :samples]."
        )
    if predicted.ndim not in (2, 3) or 0 in predicted.shape:
        raise BatchError(
            f"The waveforms have shape {tuple(predicted.shape)}; expected (batch, samples) or (batch, channels, samples), none "
            "of them 0. One waveform alone is wave[None]."
        )
    for name, waves in (("predicted", predicted), ("target", target)):
        if not waves.is_floating_point():
            raise BatchError(
                f"{name} is of type {waves.dtype}; waveforms are real floating-point numbers, usually between -1 and 1: "
                "int16 samples / 32768."
            )


def _checked_lengths(lengths: Tensor, waves: Tensor) -> Tensor:
    lengths = torch.as_tensor(lengths, device=waves.device)
    if lengths.shape != waves.shape[:1] or lengths.is_floating_point():
        raise BatchError(
            f"lengths has shape {tuple(lengths.shape)} and type {lengths.dtype}; expected one whole number of samples for each "
            f"example, shape ({len(waves)},)."
        )
    samples = waves.shape[-1]
    message = f"lengths must lie between 1 and {samples}, the number of samples."
    if lengths.device.type == "cpu" and not bool(((lengths >= 1) & (lengths <= samples)).all()):
        raise BatchError(f"{message} Got {lengths.tolist()}.")
    if lengths.device.type != "cpu":
        torch._assert_async(((lengths >= 1) & (lengths <= samples)).all(), message)
    return lengths
