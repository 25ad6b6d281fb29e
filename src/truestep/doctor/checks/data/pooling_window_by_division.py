# SPDX-License-Identifier: Apache-2.0
"""A pooling size by integer division."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import argument, resolve_expression


class PoolingWindowByDivision(SourceCheck):
    """A fixed pooling window computed as `n - (out - 1) * stride` stands for an adaptive one.

    Why: the two agree only where out divides n: 10 to 4 gives 1.5, 3.5, 5.5, 7.5 instead of 1, 3, 6, 8.

    Bad:
        stride = n // out
        pool = nn.AvgPool1d(n - (out - 1) * stride, stride)  # here

    Good:
        pool = nn.AdaptiveAvgPool1d(out)

    Fix: nn.AdaptiveAvgPool1d(out): its bins run from floor(i·n/out) to ceil((i+1)·n/out).

    Evidence: the plain form in snippet 49 of the notes.
    """

    code = "DATA014"
    words = ("Pool",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report that expression as a kernel size with a stride from an integer division."""
        for name, call in module.calls_matching("torch.nn."):
            if "ool" not in name.rpartition(".")[2]:
                continue
            first = 1 if ".functional." in name else 0  # behind the input
            kernel = resolve_expression(module, argument(call, first, "kernel_size"))
            stride = argument(call, first + 1, "stride")
            if (
                stride is not None
                and _is_floor_division(module, stride)
                and _is_pooling_window_formula(kernel, stride)
            ):
                yield At(call, "This window is the adaptive one only where the sizes divide.", RISK)


def _is_floor_division(module: SourceModule, stride: ast.expr) -> bool:
    made = resolve_expression(module, stride)
    return isinstance(made, ast.BinOp) and isinstance(made.op, ast.FloorDiv)


def _is_pooling_window_formula(kernel: ast.expr | None, stride: ast.expr) -> bool:
    """Tell `n - (out - 1) * stride`."""
    is_rest = isinstance(kernel, ast.BinOp) and isinstance(kernel.op, ast.Sub)
    return (
        is_rest
        and isinstance(kernel, ast.BinOp)
        and isinstance(kernel.right, ast.BinOp)
        and ast.unparse(stride) in ast.unparse(kernel.right)
    )
