# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of convolution, pooling and transposed convolution along one dimension.

Source: the formulas of torch's layers (https://docs.pytorch.org/docs/stable/nn.html), and their checks, which the
formulas leave out; Dumoulin & Visin, "A guide to convolution arithmetic for deep learning" (2016).
"""

from bisect import bisect_left, bisect_right
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from truestep.core.errors import OptionError, check_choice, check_flag, check_number

Kind = Literal["conv", "pool", "transposed"]
KINDS = ("conv", "pool", "transposed")
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")
_OWNER = "ts.nn.Window"


@dataclass(frozen=True)
class Window:
    """The options of a convolution, a pooling or a transposed convolution along one dimension, and its sizes.

    `padding` is what stands on each side, or "same" or "valid" for a convolution; `padding_mode` as in `nn.Conv2d`.
    Options that no torch layer of this kind takes are refused with an OptionError.
    """

    kind: Kind
    kernel_size: int
    stride: int = 1
    padding: int | Literal["same", "valid"] = 0
    dilation: int = 1
    output_padding: int = 0
    ceil_mode: bool = False
    padding_mode: str = "zeros"

    def __post_init__(self) -> None:
        check_choice(_OWNER, "kind", self.kind, KINDS)
        for name, least in (("kernel_size", 1), ("stride", 1), ("dilation", 1), ("output_padding", 0)):
            check_number(_OWNER, name, getattr(self, name), example=1, least=least)
        if self.padding not in ("same", "valid"):
            check_number(_OWNER, "padding", self.padding, example=1, least=0)
        check_choice(_OWNER, "padding_mode", self.padding_mode, PADDING_MODES)
        check_flag(_OWNER, "ceil_mode", self.ceil_mode)
        if problem := _option_of_other_kind_message(self):
            raise OptionError(f"{self}: {problem}")

    @property
    def extent(self) -> int:
        """How many inputs lie between the first and the last that one window touches, both counted."""
        return self.dilation * (self.kernel_size - 1) + 1

    @property
    def pads(self) -> tuple[int, int]:
        """The padding before and after the input."""
        if self.padding == "same":
            return (self.extent - 1) // 2, self.extent // 2
        return (0, 0) if self.padding == "valid" else (self.padding, self.padding)

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults, for torch's layer: `nn.Conv2d(3, 8, **window.options)`."""
        given = asdict(self)
        del given["kind"]
        defaults = {field.name: field.default for field in fields(self)}
        if self.kind == "pool":
            defaults["stride"] = self.kernel_size  # torch's default there
        return {name: value for name, value in given.items() if value != defaults[name]}

    def output_size(self, size: int) -> int:
        """Return the size of the output for an input of `size`; a ValueError where torch's layer would raise."""
        check_number("Window.output_size", "size", size, example=32)
        smallest = self.smallest_input
        if size < smallest:
            raise ValueError(
                f"{self} takes no input of size {size}: the smallest is {smallest}. Below it the padded input is smaller than the "
                "window, the padding mode has too little to copy, or nothing would be left. Pad more, or take a smaller kernel."
            )
        return self._output_size(size)

    def input_sizes(self, size: int) -> range:
        """Return all input sizes that give an output of `size`: neighbours of one another, or none."""
        check_number("Window.input_sizes", "size", size, example=16)
        lowest = self.smallest_input
        sizes = range(lowest, lowest + (size + 2) * self.stride + self.extent + sum(self.pads))
        first = bisect_left(sizes, size, key=self._output_size)
        return range(lowest + first, lowest + bisect_right(sizes, size, key=self._output_size))

    @property
    def smallest_input(self) -> int:
        """The smallest input that torch's layer accepts."""
        copied = {"circular": max(self.pads), "reflect": max(self.pads) + 1}.get(self.padding_mode, 1)
        sizes = range(self.extent + sum(self.pads) + 2)
        return max(1, copied, bisect_left(sizes, 1, key=self._output_size))

    def _output_size(self, size: int) -> int:
        before, after = self.pads
        if self.kind == "transposed":
            return (size - 1) * self.stride - before - after + self.extent + self.output_padding
        room = size + before + after - self.extent
        if not self.ceil_mode:
            return room // self.stride + 1
        # No window may start in the padding at the end.
        return min(-(-room // self.stride) + 1, -(-(size + before) // self.stride))


def _option_of_other_kind_message(window: Window) -> str | None:
    if isinstance(window.padding, str) and window.kind != "conv":
        return f"padding={window.padding!r} is for convolutions only. Give a number."
    if window.padding == "same" and window.stride != 1:
        return 'padding="same" has no meaning with a stride, and torch refuses it. Give a number.'
    if window.kind == "pool" and window.pads[0] > window.kernel_size // 2:
        return "a pool's padding is at most half its kernel, or windows would see padding alone."
    if window.ceil_mode and window.kind != "pool":
        return "ceil_mode is for pools only. Pad the input, or take another stride."
    if window.output_padding and window.kind != "transposed":
        return "output_padding is for transposed convolutions only."
    if window.output_padding >= max(window.stride, window.dilation) and window.output_padding:
        return "output_padding must be smaller than the stride or the dilation; more would be rows that nothing reaches."
    if window.padding_mode != "zeros" and window.kind != "conv":
        return "padding_mode is for convolutions only."
    return None
