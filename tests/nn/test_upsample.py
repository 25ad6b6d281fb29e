# SPDX-License-Identifier: Apache-2.0
"""Up-sampling in every mode and rank against torch's interpolation."""

from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from truestep.nn import Upsample

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


@pytest.mark.parametrize("scale", [2, 3, 4])
@pytest.mark.parametrize("mode", MODES)
def test_our_own_up_sampling_has_no_checkerboard_in_any_mode_whatever_the_weights(mode, scale):
    up = Upsample(scale, mode=mode, channels=3, num_dims=2)
    inner = up(torch.ones(1, 3, 12, 12))[..., 3 * scale : -3 * scale, 3 * scale : -3 * scale]
    torch.testing.assert_close(inner, inner[..., :1, :1].expand_as(inner))


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
        (lambda: Upsample(2, channels="3"), "channels='3'.* was given a str"),
        (lambda: Upsample(2, channels=-1), "channels=-1"),
        (lambda: Upsample(2, num_dims=0), r"num_dims=0\) is unknown.*1, 2, 3"),
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
