# SPDX-License-Identifier: Apache-2.0
"""Norms of gradients: those that a penalty compares with a number are followed, and a clip bounds none."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from truestep.doctor.experiments.follower_base import TensorNotes

_NORMS = frozenset({"norm", "vector_norm", "linalg_norm", "linalg_vector_norm"})
_SQUARES = frozenset({"square", "pow", "mul", "abs"})
_KEEP = frozenset(
    {"add", "sum", "to", "float", "squeeze", "unsqueeze", "clamp", "view", "reshape", "flatten"}
)
_COMPARE = frozenset({"sub", "rsub", "mse_loss", "l1_loss", "smooth_l1_loss"})
_SUMMED = frozenset({"sum", "mean"})


class GradientNormTracker:
    """Knows how many outputs a gradient is of, and what its norms are."""

    def __init__(self) -> None:
        self._summed = TensorNotes[int]()  # how many numbers a sum is of
        self._outputs = TensorNotes[int]()  # how many outputs a gradient, or its squares, are of
        self._norms = TensorNotes[int]()

    def taken(self, outputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        """Note gradients of outputs; where these are one sum, of what it sums."""
        count = sum(self._summed.get(each) or each.numel() for each in outputs)
        for each in gradients:
            if each is not None and count > 1:
                self._outputs[each] = count

    def look(
        self, name: str, result: Tensor, given: Sequence[Tensor], args: Sequence[Any]
    ) -> tuple[int, int] | None:
        """Return how many norms a number is taken off, and how many outputs there are, where these are fewer."""
        source = given[0]
        if name in _SUMMED and source.requires_grad and result.numel() == 1:
            self._summed[result] = source.numel()
        count, normed = self._outputs.get(source), self._norms.get(source)
        if count is not None and (name in _NORMS or name == "sqrt"):
            self._norms[result] = count
        elif count is not None and name in _SQUARES | _KEEP:
            self._outputs[result] = count
        elif normed is not None and name in _COMPARE and _is_nonzero_number(args[1:2]):
            return (source.numel(), normed) if source.numel() > normed else None
        elif normed is not None and name in _KEEP:
            self._norms[result] = normed
        return None


def _is_nonzero_number(other: Sequence[Any]) -> bool:
    """Tell one number other than 0, also where it is given for each norm."""
    if not other or not isinstance(other[0], Tensor):
        return bool(other) and bool(other[0])
    numbers = other[0].detach().reshape(-1)
    return not other[0].requires_grad and bool((numbers == numbers[0]).all()) and bool(numbers[0])


def clip_without_bound(_original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a clip by norm or value at no bound: clipped gradients of two halves have no mean."""

    def compute_total_norm(parameters: Any, *_: Any, **__: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        found = [each.grad.detach().norm() for each in given if each.grad is not None]
        return torch.stack(found).norm() if found else torch.zeros(())

    return compute_total_norm
