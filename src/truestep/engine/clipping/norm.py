# SPDX-License-Identifier: Apache-2.0
"""Clipping by the norm of all gradients (Pascanu, Mikolov & Bengio, ICML 2013)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from truestep.core.errors import OptionError, check_number
from truestep.engine.clipping.base import Clip, Gradients


@dataclass(frozen=True)
class ClipNorm(Clip):
    """Shrink all gradients of a learner by one factor, so that their norm is at most `max_norm`; the direction stays.

    Args:
        max_norm: the largest norm let through.
        norm_type: the order of the norm: 1, 2, `float("inf")` or any other p ≥ 1.
    """

    max_norm: float
    norm_type: float = 2.0
    takes_parts: ClassVar[bool] = True
    may_draw: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("ts.ClipNorm", "max_norm", self.max_norm, example=1.0)
        check_number("ts.ClipNorm", "norm_type", self.norm_type, example=2.0)
        if not self.max_norm > 0:
            raise OptionError(
                f"ClipNorm({self.max_norm}) would stop all training: a gradient of norm 0 moves nothing. Give a positive "
                "number (1.0 is usual); for no clipping leave clip=None."
            )
        if not self.norm_type >= 1:
            raise OptionError(f"norm_type={self.norm_type} is no norm; give 1, 2, float('inf') or a p >= 1.")

    def apply(self, gradients: Gradients, norm: Tensor) -> None:
        """Multiply by max_norm / norm where that is below one (the formula of `torch.nn.utils.clip_grad_norm_`)."""
        # On a CPU the norm can be looked at for nothing; multiplying by exactly 1 would change no bit.
        # 0.999: nearer to the limit the quotient below, rounded in the norm's type, might not be clamped to exactly 1.
        if norm.is_cpu and norm.item() + 1e-6 < 0.999 * self.max_norm:
            return
        coefficient = torch.clamp(self.max_norm / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(gradients.tensors, coefficient)
