# SPDX-License-Identifier: Apache-2.0
"""E[x²] − E[x]² in float32."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class VarianceByDifference(SourceCheck):
    """A variance is computed as the mean of squares minus the square of the mean.

    Why: two nearly equal numbers are subtracted: in float32, with a mean 1000 and a deviation 0.01, it is
    negative.

    Bad:
        std = (q / count - (s / count) ** 2).sqrt()  # here

    Good:
        std = torch.cat(chunks).double().std()

    Fix: merge (count, mean, M2) in float64 (Chan), or torch.var of the whole.
    """

    code = "DATA012"
    words = ("** 2", "**2")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `a / n - (b / n) ** 2` over one n."""
        for node in module.all(ast.BinOp):
            if (
                not isinstance(node.op, ast.Sub)
                or not isinstance(node.left, ast.BinOp)
                or not isinstance(node.left.op, ast.Div)
            ):
                continue
            power = node.right
            if (
                isinstance(power, ast.BinOp)
                and isinstance(power.op, ast.Pow)
                and isinstance(power.left, ast.BinOp)
            ):
                mean = power.left
                if isinstance(mean.op, ast.Div) and ast.dump(mean.right) == ast.dump(node.left.right):
                    yield At(
                        node,
                        "Mean of squares minus square of the mean: rounding makes it wrong or negative.",
                        RISK,
                    )
