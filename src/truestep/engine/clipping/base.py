# SPDX-License-Identifier: Apache-2.0
"""What a kind of clipping is, and the norm of a set of gradients."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


class Gradients(NamedTuple):
    """What a clip works on: gradients (changed in place) with the parameters and names they belong to."""

    names: Sequence[str]
    parameters: Sequence[Tensor]
    tensors: list[Tensor]


class Clip(ABC):
    """A kind of gradient clipping. It sees normalised gradients: of the mean loss, without a loss scale."""

    norm_type: float = 2.0
    """The order of the norm that is logged, taken before clipping."""
    takes_parts: ClassVar[bool] = False
    """Whether parts of gradients will do, as `strategy="fsdp"` has them: it asks for no more than each number, and the norm."""

    may_draw: ClassVar[bool] = True
    """Whether it may draw random numbers: these are keyed by the update then, and not the last part's."""

    @abstractmethod
    def apply(self, gradients: Gradients, norm: Tensor) -> None:
        """Clip `gradients` in place; `norm` is their total norm of order `norm_type`."""


def gradient_values(parameter: Tensor) -> Tensor | None:
    """Return the gradient; of a sparse one the rows as they came, a row as often as it was used: the gradient's own memory."""
    gradient = parameter.grad
    return gradient._values() if gradient is not None and gradient.is_sparse else gradient


def dense_gradient(parameter: Tensor) -> Tensor | None:
    """Return the gradient; of a sparse one the rows that are there, whose memory is the gradient's own."""
    if parameter.grad is None or not parameter.grad.is_sparse:
        return parameter.grad
    # Put back: `_values` is then the memory that the optimizer reads, with each row once.
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad._values()


def total_gradient_norm(gradients: list[Tensor], norm_type: float = 2.0) -> Tensor:
    """Return the norm of all gradients seen as one vector, a 0-d tensor (float32 for half-precision gradients).

    The same operations as `torch.nn.utils.get_total_norm`, so that the bits agree with a hand-written loop's.
    """
    if norm_type == math.inf:
        # torch has no largest element of an empty tensor
        gradients = [gradient for gradient in gradients if gradient.numel()] or [gradients[0].new_zeros(1)]
    # real ones beside them: torch groups by type, in an order of its own
    if any(map(torch.is_complex, gradients)):
        return torch.nn.utils.get_total_norm(gradients, norm_type)
    norms = torch.stack(gradient_norms(gradients, norm_type))
    norm: Tensor = torch.linalg.vector_norm(norms, norm_type)
    return norm


def gradient_norms(tensors: list[Tensor], norm_type: float = 2.0) -> tuple[Tensor, ...]:
    """Return the norm of each tensor, of tensors in half precision in float32."""
    half = tensors[0].dtype in _HALF
    return tuple(torch._foreach_norm(tensors, norm_type, dtype=torch.float32 if half else None))
