# SPDX-License-Identifier: Apache-2.0
"""Muon over divided weights: it turns a matrix as a whole, and of the whole each process keeps its part.

torch's Muon multiplies in bfloat16. Over parts it would round other sums, and where there is hardly a gradient in a direction, its
iteration makes of such a difference one of the size of the update.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from truestep.engine.fused import FusedOptimizerStep
from truestep.engine.processes.shards import divide_like, is_divided_over_ranks


class WholeMatrices(TorchFunctionMode):
    """Gathers what is made to bfloat16, and adds to a divided weight its part of what is whole."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call a function of torch, of two with other arguments."""
        if func is Tensor.bfloat16 and is_divided_over_ranks(args[0]):
            return args[0].full_tensor().bfloat16()
        if func is Tensor.add_ and is_divided_over_ranks(args[0]):
            args = (args[0], divide_like(args[1], args[0]), *args[2:])
        return func(*args, **(kwargs or {}))


class WholeMatrixStep(FusedOptimizerStep):
    """Steps an optimizer whose update of a matrix is no sum of those of its parts."""

    def __call__(self, gathered: list[Tensor] | None = None) -> None:
        """Step with the gradients that are there; all processes do, since each matrix is gathered."""
        with WholeMatrices():
            super().__call__(gathered)


def optimizer_step(
    optimizer: Optimizer, gathered: Sequence[Tensor], *, are_divided: bool
) -> FusedOptimizerStep:
    """Return what steps an optimizer."""
    is_whole = are_divided and isinstance(optimizer, torch.optim.Muon)
    return (WholeMatrixStep if is_whole else FusedOptimizerStep)(optimizer, gathered)
