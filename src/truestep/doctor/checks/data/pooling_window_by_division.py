# SPDX-License-Identifier: Apache-2.0
"""A pooling size by integer division."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


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
            if "Pool" not in name or len(call.args) < 2:
                continue
            kernel, stride = call.args[0], call.args[1]
            values = module.definitions(stride) if dotted(stride) else [stride]
            divided = any(
                isinstance(each, ast.BinOp) and isinstance(each.op, ast.FloorDiv) for each in values
            )
            product = (
                isinstance(kernel, ast.BinOp)
                and isinstance(kernel.op, ast.Sub)
                and isinstance(kernel.right, ast.BinOp)
            )
            if (
                divided
                and product
                and isinstance(kernel, ast.BinOp)
                and ast.unparse(stride) in ast.unparse(kernel.right)
            ):
                yield At(call, "This window is the adaptive one only where the sizes divide.", RISK)
