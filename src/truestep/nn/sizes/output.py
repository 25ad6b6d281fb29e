# SPDX-License-Identifier: Apache-2.0
"""Sizes through torch's layers, forward and backward, and the layers that turn one size into another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from numbers import Integral
from typing import Any

from torch import nn

from truestep.core.errors import OptionError, check_choice, check_number
from truestep.core.result_display import RenderableType, Result
from truestep.nn.sizes.windows import KINDS, Kind, Window


def _rank_by_layer_type(*stems: str) -> dict[type[nn.Module], int]:
    return {getattr(nn, f"{stem}{rank}d"): rank for stem in stems for rank in (1, 2, 3)}


_LAYERS: dict[Kind, dict[type[nn.Module], int]] = {
    "conv": _rank_by_layer_type("Conv"),
    "pool": _rank_by_layer_type("MaxPool", "AvgPool", "LPPool"),
    "transposed": _rank_by_layer_type("ConvTranspose", "MaxUnpool"),
}
_ADAPTIVE = _rank_by_layer_type("AdaptiveAvgPool", "AdaptiveMaxPool")


def output_size(layer: nn.Module, size: int | Sequence[int]) -> tuple[int, ...]:
    """Return the spatial size that a convolution, pooling, transposed convolution or unpooling layer makes of `size`.

    It is `layer(x).shape[2:]` for an `x` of that spatial size; a ValueError where the layer would raise or give nothing.
    One number stands for all dimensions. For a whole network torch's own way is better, though it checks a little less:
    `net.to("meta")(torch.empty(..., device="meta")).shape`.
    """
    wanted = _adaptive_output_size(layer)
    if wanted is None:
        windows = layer_windows(layer)
        each = _size_by_dimension(size, len(windows))
        if any(one < least for one, least in zip(each, _least_input_sizes(layer, windows), strict=True)):
            raise ValueError(
                f"{layer} takes no input of size {size}: torch's pools of volumes want at least the kernel's size, whatever the "
                "padding. Pad the input yourself, or take a smaller kernel."
            )
        return tuple(window.output_size(one) for window, one in zip(windows, each, strict=True))
    sizes = _size_by_dimension(size, len(wanted))
    if min(sizes) < 1:
        raise ValueError(f"{layer} takes no input of size {size}: there is nothing to pool.")
    return tuple(one if out is None else out for one, out in zip(sizes, wanted, strict=True))


def input_sizes(layer: nn.Module, size: int | Sequence[int]) -> tuple[range, ...]:
    """Return, for each dimension, all input sizes that `layer` turns into `size`; an empty range where there is none."""
    if _adaptive_output_size(layer) is not None:
        raise OptionError(
            f"{layer} makes its output size of every input, so there is no list of input sizes to give. "
            "ts.nn.adaptive_bins(size, output_size) says what it averages."
        )
    windows = layer_windows(layer)
    found = [
        window.input_sizes(one)
        for window, one in zip(windows, _size_by_dimension(size, len(windows)), strict=True)
    ]
    least = _least_input_sizes(layer, windows)
    pairs = zip(found, least, strict=True)
    return tuple(range(max(sizes.start, one), max(sizes.stop, one)) for sizes, one in pairs)


def _least_input_sizes(layer: nn.Module, windows: Sequence[Window]) -> list[int]:
    """Return what a layer asks of its input beside what its windows do, for each dimension."""
    whole_kernel = isinstance(layer, nn.AvgPool3d | nn.LPPool3d)
    return [window.kernel_size if whole_kernel else 1 for window in windows]


def layer_windows(layer: nn.Module) -> tuple[Window, ...]:
    """Return the windows of a layer, one for each spatial dimension."""
    for kind, table in _LAYERS.items():
        for layer_type, rank in table.items():
            if isinstance(layer, layer_type):
                return tuple(_window_of_layer(kind, layer, dimension) for dimension in range(rank))
    names = [layer_type.__name__ for table in _LAYERS.values() for layer_type in table]
    raise OptionError(
        f"{type(layer).__name__} has no window whose sizes could be computed. There are: {', '.join(names)} and the adaptive "
        'pools. For anything else ask the module: module.to("meta")(torch.empty(..., device="meta")).shape.'
    )


def find_windows(
    kind: Kind,
    before: int | Sequence[int],
    after: int | Sequence[int],
    *,
    max_kernel_size: int | None = None,
    max_dilation: int = 1,
) -> list[Window]:
    """Return the windows that turn size `before` into `after`, the plainest first; an empty list where there is none.

    First come those that read every input (for "transposed": whose kernel is a multiple of the stride, so that no
    checkerboard is built in), with little padding and a small kernel. Strides go as far as kernels do.

    Args:
        kind: "conv", "pool" or "transposed".
        before: the input's size; or several, each of which the window must turn into the one of `after`.
        after: the output's size.
        max_kernel_size: the default is 7, and twice the ratio of the sizes where that is more.
        max_dilation: 1 finds plain windows only.
    """
    check_choice("ts.nn.find_windows", "kind", kind, KINDS)
    if max_kernel_size is not None:
        check_number("ts.nn.find_windows", "max_kernel_size", max_kernel_size, example=7, least=1)
    check_number("ts.nn.find_windows", "max_dilation", max_dilation, example=2, least=1)
    befores, afters = _check_sizes(before), _check_sizes(after)
    if not befores or len(befores) != len(afters) or min(*befores, *afters) < 1:
        raise ValueError(f"Sizes {before} and {after}: give as many after as before, each at least 1.")
    pairs = list(zip(befores, afters, strict=True))
    ratio = max(max(-(-a // b), -(-b // a)) for a, b in pairs)
    largest = max(7, 2 * ratio) if max_kernel_size is None else max_kernel_size
    found = [
        window
        for window in _candidate_windows(kind, largest, max_dilation, pairs[0])
        if all(one >= window.smallest_input and window.output_size(one) == out for one, out in pairs)
    ]
    return sorted(found, key=lambda window: _window_sort_key(window, pairs))


def _candidate_windows(
    kind: Kind, largest: int, max_dilation: int, pair: tuple[int, int]
) -> Iterator[Window]:
    for kernel_size, stride in product(range(1, largest + 1), repeat=2):
        for dilation in range(1, (max_dilation if kernel_size > 1 else 1) + 1):
            extent = dilation * (kernel_size - 1) + 1
            # beyond this padding some windows see nothing else
            limit = kernel_size // 2 if kind == "pool" else extent - 1
            for extra in range(max(stride, dilation) if kind == "transposed" else 1):
                for padding in _possible_paddings(kind, extent + extra, stride, pair):
                    if padding <= limit:
                        yield Window(kind, kernel_size, stride, padding, dilation, extra)


def _possible_paddings(kind: Kind, extent: int, stride: int, pair: tuple[int, int]) -> range:
    """Return the paddings with which a window turns the first size into the second."""
    before, after = pair
    if kind == "transposed":
        twice = (before - 1) * stride + extent - after
        return range(twice // 2, twice // 2 + 1) if twice >= 0 and twice % 2 == 0 else range(0)
    least = (after - 1) * stride + extent - before  # both sides together
    return range(max(0, -(-least // 2)), (least + stride - 1) // 2 + 1)


def _window_sort_key(window: Window, pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return what sorts windows from the plainest to the oddest."""
    padding = window.pads[0]
    ends = [(after - 1) * window.stride + window.extent - padding for _, after in pairs]
    unread = max(0, *(before - end for (before, _), end in zip(pairs, ends, strict=True)))
    uneven = window.kernel_size % window.stride if window.kind == "transposed" else unread
    skips = int(window.extent < window.stride) + window.dilation - 1
    too_much = int(2 * padding >= window.extent)
    misfit = sum(abs(max(pair) - min(pair) * window.stride) for pair in pairs)
    return (skips, int(uneven > 0), window.output_padding, too_much, misfit, window.kernel_size, padding)


def _window_of_layer(kind: Kind, layer: Any, dimension: int) -> Window:
    def setting_along_dimension(name: str, default: Any) -> Any:
        # LPPool keeps stride=None, where it is the kernel's size.
        value = getattr(layer, name, default)
        value = default if value is None else value
        return value[dimension] if isinstance(value, tuple | list) else value

    kernel_size = setting_along_dimension("kernel_size", 1)
    return Window(
        kind,
        kernel_size,
        stride=setting_along_dimension("stride", kernel_size),
        padding=setting_along_dimension("padding", 0),
        dilation=setting_along_dimension("dilation", 1),
        output_padding=setting_along_dimension("output_padding", 0),
        ceil_mode=getattr(layer, "ceil_mode", False),
        padding_mode=getattr(layer, "padding_mode", "zeros"),
    )


def _adaptive_output_size(layer: nn.Module) -> tuple[int | None, ...] | None:
    for layer_type, rank in _ADAPTIVE.items():
        if isinstance(layer, layer_type):
            wanted: Any = layer.output_size
            return tuple(wanted) if isinstance(wanted, Sequence) else (wanted,) * rank
    return None


def _check_sizes(size: int | Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(size) if isinstance(size, Sequence) and not isinstance(size, str) else (size,)
    if wrong := [each for each in sizes if isinstance(each, bool) or not isinstance(each, Integral)]:
        raise OptionError(
            f"size={wrong[0]!r}: sizes are whole numbers, one for all dimensions or a tuple with one for each: (32, 48)."
        )
    return tuple(map(int, sizes))


def _size_by_dimension(size: int | Sequence[int], rank: int) -> tuple[int, ...]:
    sizes = _check_sizes(size) if isinstance(size, Sequence) else _check_sizes(size) * rank
    if len(sizes) != rank:
        raise ValueError(
            f"The layer works on {rank} dimensions, and the size {tuple(sizes)} has {len(sizes)}. Give the spatial "
            "sizes only, without batch and channels: x.shape[2:]."
        )
    return sizes


@dataclass(frozen=True, kw_only=True)
class AdaptiveBins(Result):
    """The bins of an adaptive pool along one dimension, and the plain pool with the same bins, where there is one."""

    size: int
    output_size: int
    bins: tuple[tuple[int, int], ...]  # of each output: the first input, and the one after the last
    window: Window | None  # None: no plain pool has these bins

    def __rich__(self) -> RenderableType:
        plain = "no plain pool does the same" if self.window is None else f"the same as {self.window.options}"
        shown = " ".join(f"{start}:{stop}" for start, stop in self.bins)
        return f"adaptive pool {self.size} → {self.output_size}: {plain}; bins {shown}"


def adaptive_bins(size: int, output_size: int) -> AdaptiveBins:
    """Return what `nn.AdaptiveAvgPool1d(output_size)` and its like pool of an input of `size`, dimension by dimension.

    Output i takes the inputs from ⌊i·size/output_size⌋ up to, not including, ⌈(i+1)·size/output_size⌉. A plain pool has
    the same bins exactly when size % output_size is 0, 1 or output_size − 1 (1 only if size ≥ output_size). The last
    case needs padding=1, and for an average count_include_pad=False.
    """
    check_number("ts.nn.adaptive_bins", "size", size, example=10, least=1)
    check_number("ts.nn.adaptive_bins", "output_size", output_size, example=4, least=1)
    bins = tuple((i * size // output_size, -(-(i + 1) * size // output_size)) for i in range(output_size))
    stride, rest = divmod(size, output_size)
    plain = None
    if stride and rest <= 1:
        plain = Window("pool", stride + rest, stride)
    elif rest == output_size - 1:
        plain = Window("pool", stride + 2, stride + 1, padding=1)
    return AdaptiveBins(size=size, output_size=output_size, bins=bins, window=plain)
