# SPDX-License-Identifier: Apache-2.0
"""Spectral losses equal references in NumPy and SciPy, example by example, and are finite where sound is silent."""

import numpy as np
import pytest
import torch

import truestep as ts
from truestep.core.errors import BatchError, OptionError

FLOOR = 1e-7
SMALL = ((64, 16, 48), (128, 32, 100), (32, 8, 32))


def magnitudes(wave, fft_size, hop_size, window_size):
    """Return |STFT| by NumPy: frames centred on multiples of the hop, a periodic Hann window padded to the transform's size."""
    padded = np.pad(wave, fft_size // 2)
    window = np.zeros(fft_size)
    left = (fft_size - window_size) // 2
    window[left : left + window_size] = np.hanning(window_size + 1)[:-1]
    starts = range(0, len(wave) + 1, hop_size)
    frames = np.stack([padded[start : start + fft_size] * window for start in starts])
    return np.maximum(np.abs(np.fft.rfft(frames)), FLOOR)


def reference(predicted, target, resolutions=SMALL):
    terms = []
    for resolution in resolutions:
        of_predicted, of_target = (magnitudes(wave, *resolution) for wave in (predicted, target))
        convergence = np.linalg.norm(of_target - of_predicted) / np.linalg.norm(of_target)
        terms.append((convergence, np.abs(np.log(of_target) - np.log(of_predicted)).mean()))
    return np.mean(terms, axis=0)


def waves(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_each_example_equals_the_reference():
    predicted, target = waves(3, 500), waves(3, 500, seed=1)
    loss = ts.nn.MultiResolutionSTFTLoss(SMALL)(predicted, target)
    expected = [reference(p.numpy(), t.numpy()) for p, t in zip(predicted, target, strict=True)]
    np.testing.assert_allclose(loss.terms["spectral_convergence"], [each[0] for each in expected], rtol=1e-10)
    np.testing.assert_allclose(loss.terms["log_magnitude"], [each[1] for each in expected], rtol=1e-10)
    np.testing.assert_allclose(loss.values, [each.sum() for each in expected], rtol=1e-10)


@pytest.mark.parametrize("lengths", [[500, 250, 100], [500, 499, 1], [16, 17, 15]])
def test_padding_does_not_count_whatever_is_in_it(lengths):
    predicted, target = waves(3, 500), waves(3, 500, seed=1)
    for row, length in enumerate(lengths):
        predicted[row, length:] = float("nan")
    predicted.requires_grad_(True)
    loss = ts.nn.MultiResolutionSTFTLoss(SMALL)
    together = loss(predicted, target, torch.tensor(lengths)).values
    alone = [
        loss(predicted[row : row + 1, :n], target[row : row + 1, :n]).values for row, n in enumerate(lengths)
    ]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-10, atol=1e-12)
    (gradient,) = torch.autograd.grad(together.sum(), predicted)
    assert gradient.isfinite().all()
    assert all((gradient[row, n:] == 0).all() for row, n in enumerate(lengths))


def test_the_norm_over_the_batch_is_another_number():
    predicted, target = (
        waves(2, 500),
        waves(2, 500, seed=1) * torch.tensor([[100.0], [1.0]], dtype=torch.float64),
    )
    loss = ts.nn.MultiResolutionSTFTLoss([(64, 16, 64)])
    each = loss(predicted, target).terms["spectral_convergence"].mean()
    of_predicted, of_target = (
        np.stack([magnitudes(row.numpy(), 64, 16, 64) for row in rows]) for rows in (predicted, target)
    )
    usual = np.linalg.norm(of_target - of_predicted) / np.linalg.norm(of_target)
    assert abs(float(each) - usual) > 0.05


def test_channels_of_an_example_count_together():
    predicted, target = waves(2, 3, 400), waves(2, 3, 400, seed=1)
    loss = ts.nn.MultiResolutionSTFTLoss([(64, 16, 64)])
    flat = loss(predicted[0], target[0]).terms["log_magnitude"].mean()
    torch.testing.assert_close(loss(predicted, target).terms["log_magnitude"][0], flat)


@pytest.mark.parametrize("silent", ["predicted", "target", "both"])
def test_silence_gives_finite_losses_and_gradients(silent):
    predicted, target = waves(2, 300).float(), waves(2, 300, seed=1).float()
    if silent in ("predicted", "both"):
        predicted.zero_()
    if silent in ("target", "both"):
        target.zero_()
    predicted.requires_grad_(True)
    loss = ts.nn.MultiResolutionSTFTLoss(SMALL)(predicted, target)
    loss.values.mean().backward()
    assert loss.values.isfinite().all()
    assert predicted.grad.isfinite().all()
    if silent != "predicted":
        assert (loss.terms["spectral_convergence"] == 0).all()


def test_the_gradient_is_that_of_finite_differences():
    predicted, target = waves(1, 40).requires_grad_(True), waves(1, 40, seed=1)
    loss = ts.nn.MultiResolutionSTFTLoss([(16, 4, 16)])
    assert torch.autograd.gradcheck(lambda wave: loss(wave, target).values, (predicted,), atol=1e-4)


def test_it_computes_in_float32_under_autocast_and_in_half():
    predicted, target = waves(2, 400).float(), waves(2, 400, seed=1).float()
    loss = ts.nn.MultiResolutionSTFTLoss(SMALL)
    whole = loss(predicted, target).values
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss(predicted, target).values, whole)
    assert loss.half()(predicted.bfloat16(), target.bfloat16()).values.dtype == torch.float32
    assert torch.equal(loss(predicted, target).values, whole)
    assert list(loss.state_dict()) == []


# ------------------------------------------------------------------ sub-bands


def test_the_filters_are_those_of_scipy():
    signal = pytest.importorskip("scipy.signal")  # seconds to import, for this test alone
    bands = ts.nn.SubBands()
    low_pass = signal.firwin(63, 0.142, window=("kaiser", 9.0), scale=False)
    time = np.arange(63) - 31
    wave = waves(1, 400)
    for number in range(4):
        phase = (-1) ** number * np.pi / 4
        taps = 2 * low_pass * np.cos((2 * number + 1) * np.pi / 8 * time + phase)
        expected = np.correlate(np.pad(wave[0].numpy(), 31), taps, mode="valid")[::4]
        np.testing.assert_allclose(bands(wave)[0, number], expected, atol=1e-12)


def test_bands_put_together_are_the_waveform_again():
    time = torch.arange(4000, dtype=torch.float64) / 24000
    wave = sum((2 * torch.pi * hertz * time).sin() for hertz in (220, 3500, 7100, 10100))[None] / 4
    bands = ts.nn.SubBands()
    restored = bands.inverse(bands(wave))
    error = (restored - wave)[:, 100:-100].square().mean() / wave.square().mean()
    assert error < 1e-4  # 40 dB: the bank is nearly perfect, not perfect


def test_the_sub_band_form_compares_the_bands_and_masks_them():
    predicted, target = waves(2, 800), waves(2, 800, seed=1)
    bands = ts.nn.SubBands()
    loss = ts.nn.MultiResolutionSTFTLoss(SMALL, sub_bands=bands)
    plain = ts.nn.MultiResolutionSTFTLoss(SMALL)
    torch.testing.assert_close(loss(predicted, target).values, plain(bands(predicted), bands(target)).values)
    padded = predicted.clone()
    padded[:, 400:] = 7.0
    masked = loss(padded, target, torch.tensor([400, 800])).values
    torch.testing.assert_close(
        masked[0], loss(predicted[:1, :400], target[:1, :400]).values[0], rtol=1e-6, atol=0
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ts.nn.MultiResolutionSTFTLoss([(64, 65, 64)]), "1 <= hop_size"),
        (lambda: ts.nn.MultiResolutionSTFTLoss([]), "nothing to compare"),
        (lambda: ts.nn.MultiResolutionSTFTLoss(magnitude_floor=0), "magnitude_floor=0"),
        (lambda: ts.nn.SubBands(1), "num_bands=1"),
        (lambda: ts.nn.SubBands(taps=63), "even number"),
        (lambda: ts.nn.SubBands(cutoff=1.5), "between 0 and 1"),
    ],
)
def test_options_that_can_not_work_are_refused(make, message):
    with pytest.raises(OptionError, match=message):
        make()


@pytest.mark.parametrize(
    ("predicted", "target", "lengths", "message"),
    [
        (torch.randn(2, 100), torch.randn(2, 101), None, "other times"),
        (torch.randn(100), torch.randn(100), None, r"wave\[None\]"),
        (torch.randn(2, 0), torch.randn(2, 0), None, "none of them 0"),
        (torch.ones(2, 99, dtype=torch.int16), torch.ones(2, 99, dtype=torch.int16), None, "32768"),
        (torch.randn(2, 100), torch.randn(2, 100), torch.tensor([100]), r"shape \(2,\)"),
        (torch.randn(2, 100), torch.randn(2, 100), torch.tensor([100, 101]), "between 1 and 100"),
        (torch.randn(2, 100), torch.randn(2, 100), torch.tensor([0, 5]), "between 1 and 100"),
        (torch.randn(2, 100), torch.randn(2, 100), torch.tensor([0.5, 1]), "whole number"),
    ],
)
def test_waveforms_that_can_not_be_compared_are_refused(predicted, target, lengths, message):
    with pytest.raises(BatchError, match=message):
        ts.nn.MultiResolutionSTFTLoss(SMALL)(predicted, target, lengths)


def test_a_split_update_gives_the_whole_ones_gradient(tmp_path):
    loss = ts.nn.MultiResolutionSTFTLoss(SMALL)
    source, target = waves(6, 200).float(), waves(6, 200, seed=1).float()
    weights = []
    for micro_batch in (None, 4):
        with ts.Run(tmp_path / str(micro_batch), progress=False) as run:
            torch.manual_seed(0)
            net = run.learner(
                torch.nn.Conv1d(1, 1, 9, padding=4),
                lambda p: torch.optim.SGD(p, lr=0.1),
                micro_batch=micro_batch,
            )

            def of_batch(batch, net=net):
                result = loss(net(batch[0][:, None])[:, 0], batch[1])
                return ts.weighted(result.values, **result.terms)

            update = net.update(of_batch, (source, target))
            assert set(update.metrics) == {"spectral_convergence", "log_magnitude"}
            weights.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-5, atol=1e-7)
