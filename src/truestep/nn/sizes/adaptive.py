# SPDX-License-Identifier: Apache-2.0
"""What an adaptive pool averages, and when a plain pool does the same."""

from dataclasses import dataclass

from truestep.core.errors import check_number
from truestep.core.results import RenderableType, Result
from truestep.nn.sizes.windows import Window


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
    return AdaptiveBins(size=size, output_size=output_size, bins=bins, window=_plain(size, output_size))


def _plain(size: int, output_size: int) -> Window | None:
    stride, rest = divmod(size, output_size)
    if stride and rest <= 1:
        return Window("pool", stride + rest, stride)
    if rest == output_size - 1:
        return Window("pool", stride + 2, stride + 1, padding=1)
    return None
