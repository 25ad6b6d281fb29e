# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class StftWithoutReturnComplex(Explainer):
    """torch.stft of real samples is not told whether its result is complex.

    Means: the old result, real and imaginary part in a last axis of two, went away: torch wants return_complex=True said, and
    istft takes complex spectra only.

    Raises:
        torch.stft(torch.zeros(1, 400), n_fft=64)

    Works:
        window = torch.hann_window(64)
        spectrum = torch.stft(torch.zeros(1, 400), n_fft=64, window=window, return_complex=True)

    Fix: write return_complex=True. What used the last axis of two takes .abs() (magnitude), .angle() (phase), or
    torch.view_as_real(spectrum), which has the old shape; torch.view_as_complex makes an old spectrum one for istft.

    Cases:
        `istft`: istft was given a spectrum in the old shape, real and imaginary part in the last axis.
            Fix: write torch.istft(torch.view_as_complex(spectrum.contiguous()), ...).
    """

    messages = (
        r"stft requires the return_complex parameter be given for real inputs",
        r"stft with return_complex=False is (?:deprecated|no longer supported)",
        r"istft (?:input must be complex|requires a complex-valued input tensor)",
    )
