# SPDX-License-Identifier: Apache-2.0
"""Clipping of each gradient entry by itself."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from truestep.core.errors import OptionError, check_number
from truestep.engine.clipping.base import Clip, Gradients


@dataclass(frozen=True)
class ClipValue(Clip):
    """Clamp every entry of every gradient to [-max_value, max_value]; this turns the direction."""

    max_value: float
    takes_parts: ClassVar[bool] = True
    may_draw: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("ts.ClipValue", "max_value", self.max_value, example=0.5)
        if not self.max_value > 0:
            raise OptionError(
                f"ClipValue({self.max_value}) would set every gradient to zero and stop all training. Give a positive "
                "number; for no clipping leave clip=None."
            )

    def apply(self, gradients: Gradients, norm: Tensor) -> None:
        """Clamp in place; NaN stays NaN, to be found by the run's non-finite policy."""
        if strange := [
            name for name, each in zip(gradients.names, gradients.tensors, strict=True) if each.is_complex()
        ]:
            raise OptionError(
                f"ClipValue has no meaning for complex gradients, as {strange[0]!r} has: they have no order. Use ts.ClipNorm."
            )
        torch._foreach_clamp_min_(gradients.tensors, -self.max_value)
        torch._foreach_clamp_max_(gradients.tensors, self.max_value)
