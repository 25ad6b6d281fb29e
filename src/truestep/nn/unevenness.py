# SPDX-License-Identifier: Apache-2.0
"""Whether a module reaches some output positions more than their neighbours: checkerboard patterns."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from truestep.core.errors import OptionError
from truestep.core.results import Result
from truestep.nn.layers import NORMS, check_model, refuse_lazy

if TYPE_CHECKING:
    from rich.console import RenderableType

_ROUNDING = 1e-9  # of float64 sums over thousands of weights, with room
_NORMS = (*NORMS, nn.LocalResponseNorm)


@dataclass(frozen=True, kw_only=True)
class Checkerboard(Result):
    """How unevenly a module answers an even input, away from the borders."""

    unevenness: float  # 0: even; 0.75: the emptiest position of a period gets a quarter of the busiest
    period: tuple[
        int, ...
    ]  # in each spatial dimension, the distance after which the pattern repeats; 1: even
    pattern: list[Any]  # one period of the worst channel, the largest magnitude being 1

    @property
    def is_even(self) -> bool:
        """Whether nothing but rounding is left of a pattern."""
        return self.unevenness < 1e-6

    def __rich__(self) -> "RenderableType":
        if self.is_even:
            return "no checkerboard: every position of the output is reached alike"
        rows = self.pattern if isinstance(self.pattern[0], list) else [self.pattern]
        shown = [" ".join(f"{value:5.2f}" for value in row) for row in rows if not isinstance(row[0], list)]
        period = " × ".join(map(str, self.period))
        return "\n".join([f"checkerboard: unevenness {self.unevenness:.3g}, period {period}", *shown])


@torch.no_grad()
def checkerboard(
    module: nn.Module, input_shape: Sequence[int], *, weights: Literal["even", "own"] = "even"
) -> Checkerboard:
    """Measure the periodic unevenness of what `module` makes of an input of ones, in the inner half of its output.

    With even weights it is a matter of the architecture alone: all weights equal, no biases, no normalisation, so that a
    position's answer counts how many weights reach it. A transposed convolution whose kernel is no multiple of its stride is
    uneven by construction. With `weights="own"` it is the pattern that the module draws with the weights it has.

    The module is copied, in float64 and evaluation mode; it and the random state stay as they are.

    Args:
        module: takes one tensor and returns one of shape (batch, channels, ...).
        input_shape: with the batch, large enough that borders do not reach the inner half of the output.
        weights: "even" or "own".

    Source: Odena, Dumoulin & Olah, "Deconvolution and Checkerboard Artifacts" (Distill, 2016).
    """
    if weights not in ("even", "own"):
        raise OptionError(f'weights={weights!r} is unknown. There are: "even" and "own".')
    check_model(module)
    refuse_lazy(module)
    _check_shape(input_shape)
    copied = copy.deepcopy(module).eval().double()
    if weights == "even":
        copied = _evened(copied)
    devices = {value.device for value in (*copied.parameters(), *copied.buffers())}
    device = next(iter(devices), torch.device("cpu"))
    if device.type == "meta":
        raise OptionError(
            "The module is on the device meta, where nothing is computed: module.to_empty(device='cpu')."
        )
    with torch.random.fork_rng(devices=[one for one in devices if one.type == "cuda"]):
        answer = copied(torch.ones(*input_shape, dtype=torch.float64, device=device))
    return _measured(_inner_half(answer), tuple(input_shape))


def _check_shape(shape: object) -> None:
    counts = list(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else []
    if len(counts) < 3 or not all(isinstance(each, int) and each > 0 for each in counts):
        raise OptionError(
            f"input_shape={shape!r}: give the shape of a batch of pictures, (1, channels, height, width), of whole numbers from 1."
        )


def _evened(module: nn.Module) -> nn.Module:
    if isinstance(module, _NORMS):
        return nn.Identity()
    for name, child in list(module.named_children()):
        setattr(module, name, _evened(child))
    for name, value in module.named_parameters(recurse=False):
        value.fill_(
            0.0 if name.endswith("bias") else value.shape[0] / value.numel() if value.ndim > 1 else 1.0
        )
    return module


def _inner_half(answer: Any) -> Tensor:
    """Return the middle of the first example, of shape (channels, ...)."""
    if not isinstance(answer, Tensor) or answer.ndim < 3 or not answer.isfinite().all():
        what = f"shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else f"a {type(answer).__name__}"
        raise ValueError(
            f"The module returned {what}; checkerboard looks at finite tensors of shape (batch, channels, ...). Wrap the "
            "module so that it returns the picture alone."
        )
    inner = answer[0]
    for dimension in range(1, inner.ndim):
        margin = inner.shape[dimension] // 4
        inner = inner.narrow(dimension, margin, inner.shape[dimension] - 2 * margin)
    return inner


def _measured(inner: Tensor, input_shape: tuple[int, ...]) -> Checkerboard:
    largest = inner.abs().max().item()
    if largest == 0:
        raise ValueError(
            "The module answers an input of ones with zeros, so there is no pattern to measure. Leave out what subtracts "
            "the mean or cuts off small values."
        )
    period = []
    for dimension in range(1, inner.ndim):
        distance = _period(inner, dimension, largest)
        if distance is None:
            raise ValueError(
                f"With inputs of shape {input_shape} the inner half of the output, {tuple(inner.shape[1:])}, does not repeat in "
                f"dimension {dimension - 1}: the borders reach into it, or the module draws at random. Pass a larger input_shape."
            )
        period.append(distance)
        inner = inner.narrow(dimension, 0, distance)
    channels = inner.flatten(1)
    peaks = channels.abs().amax(1)
    spread = (channels.amax(1) - channels.amin(1)) / torch.where(peaks > 0, peaks, 1.0)
    worst = int(spread.argmax())
    unevenness = spread[worst].item()
    pattern = (inner[worst] / peaks[worst].clamp(min=torch.finfo(inner.dtype).tiny)).tolist()
    return Checkerboard(unevenness=unevenness, period=tuple(period), pattern=pattern)


def _period(inner: Tensor, dimension: int, largest: float) -> int | None:
    size = inner.shape[dimension]
    for distance in range(1, size // 2 + 1):
        change = inner.narrow(dimension, distance, size - distance) - inner.narrow(
            dimension, 0, size - distance
        )
        if change.abs().max().item() <= _ROUNDING * largest:
            return distance
    return None
