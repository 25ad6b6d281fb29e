# SPDX-License-Identifier: Apache-2.0
"""Whether the examples of a batch mix, so that derivatives of each alone would add those of others."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from truestep.core.errors import LossError

FEW = 16  # examples: every pair of them is looked at
_ROUNDING = 1000.0  # units in the last place, of the largest derivative
_right: "WeakSet[Any]" = WeakSet()

PullBack = Callable[[Tensor], tuple[Tensor, ...]]


def refuse_mixed_examples(function: Any, output: Tensor, pull_back: PullBack) -> None:
    """Raise a LossError where an example's output depends on another's input; a function that is right is looked at once.

    Some examples' outputs are gone back from, and what arrives at the other examples' inputs has to be zero. Among more than
    `FEW` examples two such groups stand for all.
    """
    if len(output) < 2 or _is_known(function) or not _can_be_read(output):
        return
    for group in _groups(len(output), output.device):
        gradients = pull_back(group.to(output.dtype).reshape(-1, *[1] * (output.ndim - 1)).expand_as(output))
        for gradient in gradients:
            # NaN, of a zero times an infinite derivative, says nothing
            size = gradient.detach().abs().nan_to_num(0.0, 0.0)
            noise = _ROUNDING * torch.finfo(size.dtype).eps * size.max() if size.numel() else 0.0
            if bool((size[~group] > noise).any()):
                raise LossError(_MIXED.format(shape=tuple(gradient.shape)))
    with suppress(TypeError):
        _right.add(function)


def _groups(number: int, device: torch.device) -> Iterator[Tensor]:
    """Yield groups of examples, and their complements: of few examples each pair is parted by some."""
    rows = torch.arange(number, device=device)
    bits = [rows >> bit & 1 for bit in range(max(number - 1, 0).bit_length())]
    # the parity of the bits puts neighbours, and every second row, into different groups now and then
    for bit in bits if number <= FEW else [torch.stack(bits).sum(0) & 1]:
        yield bit == 1
        yield bit == 0


def _can_be_read(output: Tensor) -> bool:
    """Whether its values are there: not on the device meta, nor within another transform or a compilation."""
    inside = torch._C._functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling()
    return not inside and output.device.type != "meta"


def _is_known(function: Any) -> bool:
    """Whether it was looked at before; a method or a lambda that is made anew each time was not."""
    try:
        return function in _right
    except TypeError:  # no weak reference, or no hash
        return False


_MIXED = (
    "Some examples' outputs depend on other examples' inputs. ts.jacobian takes the first dimension of an input (here of shape "
    "{shape}) for the batch, and would add up the derivatives of all outputs by one example's input. For a function of one point, "
    "without a batch, write torch.func.jacrev(function)(x); for several such points, "
    "torch.func.vmap(torch.func.jacrev(function))(x)."
)
