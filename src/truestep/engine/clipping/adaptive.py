# SPDX-License-Identifier: Apache-2.0
"""Adaptive clipping per unit (Brock, De, Smith & Simonyan, "High-Performance Large-Scale Image Recognition
Without Normalization", ICML 2021, equation 3)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from truestep.core.errors import OptionError, check_number
from truestep.engine.clipping.base import Clip, Gradients


@dataclass(frozen=True)
class ClipAdaptive(Clip):
    """Shrink each unit's gradient to at most `ratio` times the norm of the unit's weights.

    A unit is a row of a matrix, an output channel of a convolution, or a whole vector (bias, gain).

    Args:
        ratio: the paper's λ; 0.01 suits large batches.
        min_weight_norm: the paper's ε: weights are taken to be at least this long, so that zeros can start to move.
        skip: parameters whose name starts with one of these are left alone; the paper skips the last linear layer.
    """

    ratio: float = 0.01
    min_weight_norm: float = 1e-3
    skip: tuple[str, ...] = ()
    may_draw: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("ts.ClipAdaptive", "ratio", self.ratio, example=0.01)
        check_number("ts.ClipAdaptive", "min_weight_norm", self.min_weight_norm, example=0.001)
        if not self.ratio > 0 or not self.min_weight_norm > 0:
            raise OptionError(
                f"ClipAdaptive(ratio={self.ratio}, min_weight_norm={self.min_weight_norm}) would stop all training; "
                "both must be positive (0.01 and 0.001 in the paper)."
            )

    def apply(self, gradients: Gradients, norm: Tensor) -> None:
        """Scale unit by unit, in place."""
        for name, parameter, gradient in zip(
            gradients.names, gradients.parameters, gradients.tensors, strict=True
        ):
            if not name.startswith(self.skip):
                if gradient.shape != parameter.shape:
                    raise OptionError(
                        f"ClipAdaptive compares whole parameters with whole gradients, and the sparse gradient of {name!r} holds "
                        "few rows. Use ts.ClipNorm, or nn.Embedding(..., sparse=False)."
                    )
                largest = clip_unit_norms(parameter.detach()).clamp(min=self.min_weight_norm) * self.ratio
                # a unit whose gradient is zero is divided by something
                factor = (largest / clip_unit_norms(gradient).clamp(min=1e-6)).clamp(max=1.0)
                gradient.mul_(factor.to(gradient.dtype))


def clip_unit_norms(tensor: Tensor) -> Tensor:
    """Return the norm of each unit, shaped to broadcast over `tensor`; at least float32."""
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    dims = tuple(range(1, tensor.ndim)) if tensor.ndim > 1 else None
    norms: Tensor = torch.linalg.vector_norm(tensor, dim=dims, keepdim=True, dtype=dtype)
    return norms
