# SPDX-License-Identifier: Apache-2.0
"""Pictures, sound and text become files that any program reads back, and what does not fit is said."""

import io
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import truestep as ts

PIL = pytest.importorskip("PIL.Image")


def decoded(image: ts.Image) -> np.ndarray:
    with PIL.open(io.BytesIO(image.content)) as opened:
        return np.asarray(opened)


def heard(audio: ts.Audio) -> tuple[np.ndarray, int]:
    with wave.open(io.BytesIO(audio.content)) as file:
        assert file.getsampwidth() == 2
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return samples.reshape(-1, file.getnchannels()).T, file.getframerate()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 3, 4]), st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**31))
def test_another_reader_sees_the_same_pixels(channels, height, width, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (channels, height, width), dtype=np.uint8)
    seen = decoded(ts.Image(pixels))
    expected = pixels[0] if channels == 1 else pixels.transpose(1, 2, 0)
    assert (seen == expected).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool])
def test_floats_reach_from_black_to_white(dtype):
    seen = decoded(ts.Image(torch.tensor([[0, 1]]).to(dtype)))
    assert seen.tolist() == [[0, 255]]


def test_a_generator_that_ends_in_tanh_says_so():
    pixels = torch.tensor([[-1.0, 0.0, 1.0]], requires_grad=True)
    assert decoded(ts.Image(pixels, low=-1)).tolist() == [[0, 128, 255]]
    assert ts.Image(pixels, low=-1).note == ""
    assert ts.Image(pixels).note == "1 of 3 values lie outside [0, 1] and are cut off"


def test_what_is_not_finite_is_said():
    spoilt = torch.tensor([[float("nan"), float("inf"), 0.5]])
    assert decoded(ts.Image(spoilt)).tolist() == [[0, 0, 128]]
    assert "2 of 3 values are not finite" in ts.Image(spoilt).note
    sound, _ = heard(ts.Audio(spoilt[0], 8_000))
    assert sound[0, :2].tolist() == [0, 0]


def test_a_batch_becomes_a_grid():
    batch = torch.arange(1, 6).view(5, 1, 1, 1).expand(5, 1, 2, 3).to(torch.uint8)
    seen = decoded(ts.Image(batch))
    assert seen.shape == (2 * 2 + 1, 3 * 3 + 2)
    assert seen[::3, ::4].tolist() == [[1, 2, 3], [4, 5, 0]]
    assert decoded(ts.Image(batch, columns=5)).shape == (2, 5 * 3 + 4)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 50), st.integers(0, 2**31), st.sampled_from([8_000, 44_100]))
def test_sound_comes_back(channels, length, seed, rate):
    samples = np.random.default_rng(seed).integers(-32768, 32768, (channels, length), dtype=np.int16)
    back, its_rate = heard(ts.Audio(samples, rate))
    assert (back == samples).all()
    assert its_rate == rate
    floats = samples.clip(-32767) / 32767
    assert (heard(ts.Audio(floats, rate))[0] == samples.clip(-32767)).all()


def test_the_loudest_float_is_the_loudest_sample():
    assert heard(ts.Audio(np.array([-1.0, 0.0, 1.0]), 8_000))[0].tolist() == [[-32767, 0, 32767]]
    assert "1 of 2 values lie outside [-1, 1]" in ts.Audio(torch.tensor([1.5, 0.0]), 8_000).note


def test_text_is_kept_as_it_is():
    assert ts.Text("line\n<b>ß\ud800").content == "line\n<b>ß\\ud800".encode()


REFUSED = [
    (lambda: ts.Image([1, 2]), r"list '\[1, 2\]'; it takes the values, a tensor"),
    (lambda: ts.Image("a.png"), r"str 'a\.png'; it takes the values.*Of a file read its values first"),
    (lambda: ts.Audio(Path("a.wav"), 8_000), r"Of a file read its values first, with PIL or soundfile"),
    (lambda: ts.Image(torch.rand(2, 8, 8)), r"shape \(2, 8, 8\)"),
    (lambda: ts.Image(torch.rand(8, 8, 3)), r"movedim\(pixels, -1, -3\)"),
    (lambda: ts.Image(torch.rand(0, 3, 8, 8)), "no value"),
    (lambda: ts.Image(torch.arange(4).view(2, 2)), "int64; it takes uint8"),
    (lambda: ts.Image(torch.rand(2, 2), low=1), "low < high"),
    (lambda: ts.Image(torch.rand(2, 2), columns=0), "at least 1"),
    (lambda: ts.Audio(torch.rand(9, 100), 8_000), "one sound"),
    (lambda: ts.Audio(torch.rand(2, 1, 100), 8_000), "one sound"),
    (lambda: ts.Audio(torch.arange(9), 8_000), "int64; it takes floats"),
    (lambda: ts.Audio(torch.rand(100), 8_000.0), "whole number"),
    (lambda: ts.Text(b"bytes"), "bytes; give it a string"),
    (lambda: ts.Text("x" * (5 << 20)), "takes 5 MiB, and a run keeps at most 4 MiB"),
    (lambda: ts.Audio(np.zeros(3 << 20), 8_000), "Log fewer, smaller or shorter"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_can_not_be_shown_is_refused_plainly(make, message):
    with pytest.raises(ts.OptionError, match=message):
        make()
