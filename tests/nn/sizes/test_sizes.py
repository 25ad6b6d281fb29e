# SPDX-License-Identifier: Apache-2.0
"""Sizes as computed against what torch's real layers make, their errors included."""

import warnings
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from truestep.core.errors import OptionError
from truestep.nn import Window, adaptive_bins, find_windows, input_sizes, layer_windows, output_size

SHORT = settings(max_examples=150, deadline=None)
small = st.integers(1, 4)


def real(layer, size):
    """Return the size that torch gives, or None where it raises or (unpooling can) gives nothing."""
    ones = torch.ones(1, 1, *size)
    extra = (torch.zeros_like(ones, dtype=torch.long),) if "Unpool" in type(layer).__name__ else ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of even kernels with padding="same"
        try:
            made = tuple(layer(ones, *extra).shape[2:])
            return made if all(made) else None
        except (RuntimeError, ValueError):
            return None


def computed(layer, size):
    try:
        return output_size(layer, size)
    except (ValueError, OptionError):
        return None


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 2))
    each = st.tuples(*[small] * rank)
    padding = draw(st.one_of(st.tuples(*[st.integers(0, 4)] * rank), st.sampled_from(["same", "valid"])))
    stride = (1,) * rank if padding == "same" else draw(each)
    layer = getattr(nn, f"Conv{rank}d")
    mode = draw(st.sampled_from(["zeros", "reflect", "circular", "replicate"]))
    return layer(1, 1, draw(each), stride, padding, draw(each), padding_mode=mode), rank


@st.composite
def transposed(draw):
    rank = draw(st.integers(1, 2))
    each, some = st.tuples(*[small] * rank), st.tuples(*[st.integers(0, 3)] * rank)
    layer = getattr(nn, f"ConvTranspose{rank}d")
    return layer(1, 1, draw(each), draw(each), draw(some), draw(some), dilation=draw(each)), rank


@st.composite
def pools(draw):
    rank = draw(st.integers(1, 2))
    each, padding = st.tuples(*[small] * rank), draw(st.tuples(*[st.integers(0, 2)] * rank))
    kernel, stride, ceil_mode = draw(each), draw(st.one_of(st.none(), each)), draw(st.booleans())
    which = draw(st.sampled_from(["MaxPool", "AvgPool", "LPPool", "MaxUnpool"]))
    layer = getattr(nn, f"{which}{rank}d")
    if rank == 1 and which == "LPPool":
        kernel, stride = kernel[0], stride and stride[0]
    if which == "MaxPool":
        return layer(kernel, stride, padding, draw(each), ceil_mode=ceil_mode), rank
    if which == "AvgPool":
        return layer(kernel, stride, padding, ceil_mode), rank
    return (
        layer(2, kernel, stride, ceil_mode) if which == "LPPool" else layer(kernel, stride, padding)
    ), rank


layers = st.one_of(convolutions(), transposed(), pools())


@SHORT
@given(layers, st.data())
def test_output_size_is_what_the_real_layer_makes_and_raises_where_it_raises(made, data):
    layer, rank = made
    size = data.draw(st.tuples(*[st.integers(0, 12)] * rank))
    assert computed(layer, size) == real(layer, size)


@SHORT
@given(st.one_of(convolutions(), transposed(), pools()), st.integers(1, 8))
def test_input_sizes_are_all_that_the_real_layer_turns_into_the_size(made, size):
    layer, rank = made
    try:
        found = input_sizes(layer, size)
    except OptionError:
        assert all(real(layer, (n,) * rank) is None for n in range(13))
        return
    for dimension in range(rank):
        others = [window.smallest_input for window in layer_windows(layer)]
        for n in range(1, 20):
            got = real(layer, (*others[:dimension], n, *others[dimension + 1 :]))
            assert (n in found[dimension]) == (got is not None and got[dimension] == size)


@pytest.mark.parametrize(
    "layer",
    [
        nn.AdaptiveAvgPool2d((None, 3)),
        nn.AdaptiveMaxPool2d(4),
        nn.AdaptiveAvgPool3d((1, None, 2)),
        nn.AdaptiveAvgPool1d(3),
    ],
)
def test_adaptive_pools_keep_or_fix_the_size(layer):
    rank = int(type(layer).__name__[-2])
    assert output_size(layer, 5) == real(layer, (5,) * rank)
    with pytest.raises(ValueError, match="nothing to pool"):
        output_size(layer, 0)
    with pytest.raises(OptionError, match="adaptive_bins"):
        input_sizes(layer, 3)


def test_torch_accepts_on_the_meta_device_what_it_refuses_elsewhere_and_we_refuse_it():
    layer = nn.ConvTranspose1d(1, 1, 3, stride=2, output_padding=2, device="meta")
    assert layer(torch.empty(1, 1, 3, device="meta")).shape[2] == 9
    with pytest.raises(OptionError, match="output_padding"):
        output_size(layer, 3)


def brute_force(kind, before, after, largest):
    found = set()
    limit = range(largest + 1)
    for kernel, stride, padding, extra in product(
        limit, limit, limit, limit if kind == "transposed" else [0]
    ):
        if not kernel or not stride or padding > (kernel // 2 if kind == "pool" else kernel - 1):
            continue
        if kind == "conv":
            layer = nn.Conv1d(1, 1, kernel, stride, padding)
        elif kind == "pool":
            layer = nn.MaxPool1d(kernel, stride, padding)
        else:
            layer = nn.ConvTranspose1d(1, 1, kernel, stride, padding, extra)
        if real(layer, (before,)) == (after,):
            found.add((kernel, stride, padding, extra))
    return found


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["conv", "pool", "transposed"]), st.integers(1, 9), st.integers(1, 9))
def test_find_windows_finds_exactly_those_that_work(kind, before, after):
    found = [
        (w.kernel_size, w.stride, w.padding, w.output_padding)
        for w in find_windows(kind, before, after, max_kernel_size=4)
    ]
    assert len(set(found)) == len(found)
    assert set(found) == brute_force(kind, before, after, 4)


@pytest.mark.parametrize(
    ("kind", "before", "after", "options"),
    [
        ("conv", 32, 32, {"kernel_size": 1}),
        ("conv", 32, 16, {"kernel_size": 2, "stride": 2}),
        ("conv", (31, 47), (16, 24), {"kernel_size": 3, "stride": 2, "padding": 1}),
        ("conv", 32, 28, {"kernel_size": 5}),
        ("pool", 32, 16, {"kernel_size": 2}),
        ("pool", 224, 7, {"kernel_size": 32}),
        ("pool", 7, 1, {"kernel_size": 7}),
        ("transposed", 7, 14, {"kernel_size": 2, "stride": 2}),
        ("transposed", 5, 20, {"kernel_size": 4, "stride": 4}),
    ],
)
def test_the_first_window_is_the_one_that_a_person_would_write(kind, before, after, options):
    assert find_windows(kind, before, after)[0].options == options


def test_dilated_windows_come_last_and_only_when_asked_for():
    assert all(window.dilation == 1 for window in find_windows("conv", 32, 28))
    found = find_windows("conv", 32, 28, max_dilation=2)
    assert Window("conv", 3, dilation=2) in found
    assert found[0].dilation == 1


def test_no_window_is_an_empty_list():
    assert find_windows("pool", 4, 40) == []


@pytest.mark.parametrize("window", find_windows("conv", 20, 9)[:5])
def test_options_fit_the_layer(window):
    assert nn.Conv2d(1, 1, **window.options)(torch.ones(1, 1, 20, 20)).shape[2:] == (9, 9)


def bins_of(window, size):
    start = [i * window.stride - window.padding for i in range(window.output_size(size))]
    return tuple((max(0, i), min(size, i + window.kernel_size)) for i in start)


def test_an_adaptive_pool_is_plain_exactly_where_the_rule_says():
    for size, out in product(range(1, 10), range(1, 11)):
        bins = adaptive_bins(size, out)
        every = [
            Window("pool", k, s, p, ceil_mode=c)
            for k in range(1, size + 3)
            for s in range(1, size + 3)
            for p in range(k // 2 + 1)
            for c in (False, True)
        ]
        plain = [
            w
            for w in every
            if size >= w.smallest_input and w.output_size(size) == out and bins_of(w, size) == bins.bins
        ]
        assert bool(plain) == (bins.window is not None), (size, out)
        assert bins.window is None or bins.window in plain
        assert (bins.window is not None) == (
            size % out in {0, 1, out - 1} and (size >= out or size == out - 1)
        )


@SHORT
@given(st.integers(1, 40), st.integers(1, 40))
def test_bins_are_what_torch_pools(size, out):
    values = torch.randn(1, 1, size, dtype=torch.float64)
    bins = adaptive_bins(size, out)
    mine = torch.stack([values[0, 0, start:stop].mean() for start, stop in bins.bins])
    torch.testing.assert_close(mine, F.adaptive_avg_pool1d(values, out)[0, 0])
    if bins.window is not None:
        average = nn.AvgPool1d(**bins.window.options, count_include_pad=False)
        torch.testing.assert_close(average(values), F.adaptive_avg_pool1d(values, out))
        assert torch.equal(nn.MaxPool1d(**bins.window.options)(values), F.adaptive_max_pool1d(values, out))


def test_bins_can_be_shown_and_saved():
    bins = adaptive_bins(10, 4)
    assert bins.to_dict()["bins"] == [[0, 3], [2, 5], [5, 8], [7, 10]]
    assert "no plain pool" in str(bins)
    assert "kernel_size" in adaptive_bins(9, 4)._repr_html_()


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "fold", "kernel_size": 3},
        {"kind": "conv", "kernel_size": 0},
        {"kind": "conv", "kernel_size": (3, 3)},
        {"kind": "conv", "kernel_size": 3, "stride": 0},
        {"kind": "conv", "kernel_size": 3, "padding": -1},
        {"kind": "conv", "kernel_size": 3, "padding": "full"},
        {"kind": "conv", "kernel_size": 3, "padding": "same", "stride": 2},
        {"kind": "conv", "kernel_size": 3, "ceil_mode": True},
        {"kind": "conv", "kernel_size": 3, "output_padding": 1},
        {"kind": "pool", "kernel_size": 3, "padding": 2},
        {"kind": "pool", "kernel_size": 3, "padding": "same"},
        {"kind": "pool", "kernel_size": 3, "padding_mode": "reflect"},
        {"kind": "transposed", "kernel_size": 3, "stride": 2, "output_padding": 2},
        {"kind": "conv", "kernel_size": True},
        {"kind": "conv", "kernel_size": 3, "padding_mode": "mirror"},
        {"kind": "pool", "kernel_size": 3, "ceil_mode": "no"},
    ],
)
def test_options_that_no_layer_takes_are_refused(options):
    with pytest.raises(OptionError, match=r"Window\("):
        Window(**options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: output_size(nn.Conv2d(1, 1, 3), (5, 5, 5)), r"x\.shape\[2:\]"),
        (lambda: output_size(nn.Conv1d(1, 1, 3), 2), "the smallest is 3"),
        (lambda: output_size(nn.Linear(3, 3), 3), "Conv2d"),
        (lambda: output_size(nn.ConvTranspose1d(1, 1, 1, padding=2), 1), "the smallest is 5"),
        (lambda: find_windows("fold", 3, 3), "There are: conv"),
        (lambda: find_windows("conv", 3, 0), "at least 1"),
        (lambda: find_windows("conv", (3, 4), 2), "as many"),
        (lambda: adaptive_bins(0, 3), "at least 1"),
        (lambda: adaptive_bins("3", 3), "size='3'.* was given a str"),
        (lambda: adaptive_bins(3, 1.0), "was given a float"),
        (lambda: output_size(nn.Conv1d(1, 1, 3), "5"), "size='5': sizes are whole numbers"),
        (lambda: output_size(nn.Conv1d(1, 1, 3), 5.0), r"size=5\.0: sizes are whole numbers"),
        (lambda: output_size(nn.Conv2d(1, 1, 3), (5, True)), "size=True: sizes are whole numbers"),
        (lambda: find_windows("conv", (), ()), "as many"),
        (lambda: find_windows("conv", 3, "3"), "size='3'"),
        (lambda: find_windows("conv", 4, 2, max_kernel_size="3"), "max_kernel_size='3'.* was given a str"),
        (lambda: find_windows("conv", 4, 2, max_dilation=0), "max_dilation=0"),
        (lambda: Window("conv", 3).output_size(5.0), r"size=5\.0.* was given a float"),
        (lambda: Window("conv", 3).input_sizes(None), "was given a NoneType"),
    ],
)
def test_bad_input_is_answered_with_what_to_write(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "layer", [nn.AvgPool3d((2, 3, 4), 1, (1, 1, 2)), nn.LPPool3d(2, [2, 3, 4], 1, ceil_mode=True)]
)
def test_pools_of_volumes_want_the_kernels_size_whatever_the_padding(layer):
    sizes = list(product(range(1, 4), range(1, 5), range(1, 6)))
    for size in sizes:
        try:
            expected = tuple(layer(torch.ones(1, 1, *size)).shape[2:])
        except RuntimeError:
            with pytest.raises(ValueError, match="want at least the kernel's size"):
                output_size(layer, size)
        else:
            assert output_size(layer, size) == expected
            assert all(one in found for one, found in zip(size, input_sizes(layer, expected), strict=True))


def test_options_may_be_lists_as_torchs_pools_take_them():
    layer = nn.AvgPool2d([2, 3], [1, 2], [1, 0])
    assert output_size(layer, (5, 7)) == tuple(layer(torch.ones(1, 1, 5, 7)).shape[2:])
