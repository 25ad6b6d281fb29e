# SPDX-License-Identifier: Apache-2.0
"""Up-sampling in every mode and rank against torch's interpolation, and the checkerboard check."""

import copy
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from truestep.nn import Upsample, checkerboard

MODES = ["nearest", "linear", "cubic", "transposed"]
SHORT = settings(max_examples=40, deadline=None)
shapes = st.integers(1, 3).flatmap(
    lambda rank: st.tuples(st.tuples(*[st.integers(1, 5)] * rank), st.tuples(*[st.integers(1, 4)] * rank))
)


@contextmanager
def float64_by_default():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


@SHORT
@given(shapes, st.sampled_from(MODES))
def test_every_mode_multiplies_every_size(case, mode):
    sizes, scales = case
    images = random(2, 3, *sizes)
    made = Upsample(scales, mode=mode, channels=3).double()(images)
    assert made.shape == (2, 3, *(size * scale for size, scale in zip(sizes, scales, strict=True)))


@SHORT
@given(shapes)
def test_transposed_starts_as_linear_up_to_the_border(case):
    sizes, scales = case
    images = random(2, 3, *sizes).requires_grad_()
    with float64_by_default():
        linear, transposed = Upsample(scales), Upsample(scales, mode="transposed", channels=3)
    torch.testing.assert_close(transposed(images), linear(images), rtol=1e-13, atol=1e-13)
    into = random(*linear(images).shape)
    (theirs,) = torch.autograd.grad(linear(images), images, into)
    (mine,) = torch.autograd.grad(transposed(images), images, into)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@SHORT
@given(shapes)
def test_nearest_repeats_each_value(case):
    sizes, scales = case
    images = random(2, 3, *sizes)
    expected = images
    for dimension, scale in enumerate(scales, start=2):
        expected = expected.repeat_interleave(scale, dimension)
    assert torch.equal(Upsample(scales, mode="nearest")(images), expected)


@pytest.mark.parametrize("scale", [41, 47, 55, 61])
def test_nearest_is_right_also_where_torchs_own_rounds_down(scale):
    images = torch.arange(3.0).reshape(1, 1, 3)
    assert not torch.equal(F.interpolate(images, scale_factor=scale), images.repeat_interleave(scale, 2))
    assert torch.equal(Upsample(scale, mode="nearest")(images), images.repeat_interleave(scale, 2))


@pytest.mark.parametrize(
    ("mode", "torchs"), [("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic")]
)
def test_pictures_are_as_torch_makes_them(mode, torchs):
    images = random(2, 3, 5, 4)
    align = {} if torchs == "nearest" else {"align_corners": False}
    expected = F.interpolate(images, scale_factor=(2, 3), mode=torchs, **align)
    torch.testing.assert_close(Upsample((2, 3), mode=mode)(images), expected)


def test_cubic_works_along_one_and_three_dimensions_as_along_each_of_two():
    line = random(2, 3, 7)
    expected = F.interpolate(line[:, :, None].expand(-1, -1, 5, -1), scale_factor=(1, 2), mode="bicubic")[
        :, :, 2
    ]
    torch.testing.assert_close(Upsample(2, mode="cubic")(line), expected)
    volume = random(1, 2, 3, 4, 5)
    flat = Upsample((1, 2, 2), mode="cubic")(volume)
    expected = torch.stack([Upsample(2, mode="cubic")(volume[:, :, depth]) for depth in range(3)], 2)
    torch.testing.assert_close(flat, expected)


def test_transposed_weights_are_learned_and_draw_no_random_numbers():
    before = torch.get_rng_state()
    up = Upsample(2, mode="transposed", channels=3, num_dims=2)
    assert torch.equal(torch.get_rng_state(), before)
    up(torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))).sum().backward()
    assert all(weight.grad.abs().max() > 0 for weight in up.parameters())
    assert list(Upsample(2).parameters()) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("mode", MODES)
def test_types_stay(mode, dtype):
    up = Upsample(2, mode=mode, channels=2, num_dims=2).to(dtype)
    assert up(torch.ones(1, 2, 3, 3, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Upsample(2, mode="bilinear"), "linear"),
        (lambda: Upsample(0), "whole number"),
        (lambda: Upsample(1.5), r"F\.interpolate"),
        (lambda: Upsample((2, 2, 2, 2)), "one to three"),
        (lambda: Upsample(2, mode="transposed"), "channels=64"),
        (lambda: Upsample(2, mode="transposed", channels=3), "num_dims=2"),
        (lambda: Upsample(2)(torch.ones(3, 4)), r"images\[None\]"),
        (lambda: Upsample((2, 2))(torch.ones(1, 3, 4)), "2 spatial sizes"),
        (lambda: Upsample(2)(torch.ones(1, 3, 0)), "at least 1"),
        (lambda: Upsample(2, channels=4)(torch.ones(1, 3, 5)), "4 channels and got 3"),
    ],
)
def test_bad_input_is_answered_with_what_to_write(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def decoder(*layers):
    return nn.Sequential(*layers)


EVEN = {
    "kernel 4, stride 2": nn.ConvTranspose2d(3, 4, 4, 2, 1),
    "kernel 6, stride 3": nn.ConvTranspose2d(3, 4, 6, 3, 2),
    "resize, then convolve": decoder(nn.Upsample(scale_factor=2), nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()),
    "pixel shuffle": decoder(nn.Conv2d(3, 16, 3, padding=1), nn.PixelShuffle(2)),
    "two transposed with normalisation": decoder(
        nn.ConvTranspose2d(3, 8, 4, 2, 1),
        nn.InstanceNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 4, 2, 1),
        nn.Tanh(),
    ),
    "down and up": decoder(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 3, 2, 2)),
    "one dimension": nn.ConvTranspose1d(3, 4, 8, 4),
}
UNEVEN = {
    "kernel 3, stride 2": (nn.ConvTranspose2d(3, 4, 3, 2), 0.75, (2, 2)),
    "kernel 5, stride 3, one dimension": (nn.ConvTranspose1d(3, 4, 5, 3), 0.5, (3,)),
    "kernel 2, stride 3": (nn.ConvTranspose1d(3, 4, 2, 3), 1.0, (3,)),
    "three dimensions": (nn.ConvTranspose3d(3, 1, 3, 2), 0.875, (2, 2, 2)),
    "an even one on an uneven one": (
        decoder(nn.ConvTranspose1d(3, 4, 3, 2, 1, 1), nn.BatchNorm1d(4), nn.ConvTranspose1d(4, 4, 2, 2)),
        0.5,
        (4,),
    ),
    "one dimension of two": (nn.ConvTranspose2d(3, 4, (4, 3), 2, 1), 0.5, (1, 2)),
}


def input_for(module):
    rank = int(next(type(m).__name__[-2] for m in module.modules() if "Conv" in type(m).__name__))
    return (1, 3, *[16] * rank)


@pytest.mark.parametrize("module", EVEN.values(), ids=EVEN)
def test_even_architectures_pass(module):
    result = checkerboard(module, input_for(module))
    assert result.is_even
    assert set(result.period) == {1}
    assert "no checkerboard" in str(result)


@pytest.mark.parametrize(("module", "unevenness", "period"), UNEVEN.values(), ids=UNEVEN)
def test_uneven_architectures_are_caught_with_their_period(module, unevenness, period):
    result = checkerboard(module, input_for(module))
    assert not result.is_even
    assert result.period == period
    assert abs(result.unevenness - unevenness) < 1e-12


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("mode", MODES)
def test_our_own_up_sampling_has_no_checkerboard_in_any_mode_whatever_the_weights(mode, scale):
    up = Upsample(scale, mode=mode, channels=3, num_dims=2)
    assert checkerboard(up, (1, 3, 12, 12)).is_even
    assert checkerboard(up, (1, 3, 12, 12), weights="own").is_even


@SHORT
@given(st.integers(1, 8), st.integers(1, 4))
def test_a_transposed_convolution_is_even_exactly_when_its_kernel_is_a_multiple_of_its_stride(kernel, stride):
    result = checkerboard(nn.ConvTranspose1d(1, 1, kernel, stride), (1, 1, 40))
    counts = [sum(1 for tap in range(kernel) if (tap - phase) % stride == 0) for phase in range(stride)]
    assert result.is_even == (kernel % stride == 0)
    assert abs(result.unevenness - (1 - min(counts) / max(counts))) < 1e-12


def test_own_weights_show_the_pattern_that_they_draw():
    layer = nn.ConvTranspose1d(1, 1, 4, 2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[1.0, 0.0, 1.0, 2.0]]]))
        layer.bias.zero_()
    assert checkerboard(layer, (1, 1, 16)).is_even
    assert checkerboard(layer, (1, 1, 16), weights="own").is_even
    with torch.no_grad():
        layer.weight[0, 0, 0] = 2.0
    assert abs(checkerboard(layer, (1, 1, 16), weights="own").unevenness - 1 / 3) < 1e-12


def test_module_mode_and_random_state_stay():
    module = decoder(nn.ConvTranspose2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    before, random_state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    checkerboard(module, (1, 3, 16, 16))
    assert module.training
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in before.items())
    assert module[0].weight.dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), random_state)


def test_the_result_is_json():
    result = checkerboard(nn.ConvTranspose1d(3, 4, 5, 3), (1, 3, 16))
    assert result.to_dict() == {
        "schema_version": 1, "unevenness": 0.5, "period": [3], "pattern": [1.0, 1.0, 0.5],
    }  # fmt: skip
    assert "0.5" in result._repr_html_()


class Noise(nn.Module):
    def forward(self, images):
        return images + torch.randn_like(images)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: checkerboard(nn.Identity(), (1, 1, 8), weights="mine"), "There are"),
        (
            lambda: checkerboard(nn.Sequential(nn.Conv1d(3, 3, 1), nn.Flatten()), (1, 3, 4)),
            r"shape \(1, 12\)",
        ),
        (lambda: checkerboard(nn.Linear(3, 3), (1, 3)), r"input_shape=\(1, 3\): give the shape of a batch"),
        (lambda: checkerboard(nn.Conv1d(1, 1, 3), "x"), "input_shape='x'"),
        (lambda: checkerboard(nn.Conv1d(1, 1, 3), (1, 1, 8.0)), "of whole numbers"),
        (lambda: checkerboard(nn.Conv1d(1, 1, 3), (1, 1, 0)), "from 1"),
        (lambda: checkerboard(None, (1, 1, 8)), "A model is expected, got NoneType"),
        (lambda: checkerboard(nn.LazyConv1d(1, 3), (1, 1, 8)), "no shape yet"),
        (lambda: checkerboard(nn.Conv1d(1, 1, 3, device="meta"), (1, 1, 8)), "on the device meta"),
        (lambda: checkerboard(nn.LSTM(3, 3), (1, 8, 3)), "a tuple"),
        (lambda: checkerboard(Noise(), (1, 3, 16)), "draws at random"),
        (lambda: checkerboard(nn.Conv1d(1, 1, 9, padding=4), (1, 1, 12)), "larger input_shape"),
        (lambda: checkerboard(nn.Threshold(2.0, 0.0), (1, 1, 12)), "with zeros"),
    ],
)
def test_what_cannot_be_measured_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_generator_with_learned_up_sampling_trains_in_a_run(tmp_path):
    with ts.Run(tmp_path, progress=False, seed=0) as run:
        net = run.learner(
            nn.Sequential(
                Upsample(2, mode="transposed", channels=1, num_dims=2), nn.Conv2d(1, 1, 3, padding=1)
            ),
            lambda p: torch.optim.SGD(p, lr=0.01),
        )
        small = torch.rand(4, 1, 4, 4)
        update = net.update(lambda batch: (net(batch) - 1).square().flatten(1).mean(1), small, micro_batch=2)
    assert update.loss.isfinite()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Upsample(True), "scale=True"),
        (lambda: Upsample(2, channels="3"), "channels='3': give a whole number from 1 on"),
        (lambda: Upsample(2, channels=-1), "channels=-1"),
        (lambda: Upsample(2, num_dims=0), "num_dims=0: give a whole number from 1 to 3"),
        (lambda: Upsample(2, num_dims="2"), "num_dims='2'"),
        (lambda: Upsample((2, 3), num_dims=3), r"scale=\(2, 3\) has 2 dimensions and num_dims=3"),
        (lambda: Upsample(2)(torch.ones(1, 1, 4, dtype=torch.int64)), r"got torch\.int64.*images\.float\(\)"),
        (lambda: Upsample(2)([[1.0]]), "got list"),
    ],
)
def test_what_no_upsampling_can_take_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_no_images_become_no_images(mode):
    assert Upsample(2, mode=mode)(torch.ones(0, 2, 3, 4)).shape == (0, 2, 6, 8)
