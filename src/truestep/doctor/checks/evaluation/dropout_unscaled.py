# SPDX-License-Identifier: Apache-2.0
"""Dropout by hand, without its scale."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk


class DropoutUnscaled(SourceCheck):
    """A hand-written dropout masks in training, returns x otherwise, and scales in neither.

    Why: activations are larger in prediction than in training, by 1/keep.

    Bad:
        def drop(x, keep=0.8, training=True):
            if training:
                return x * (torch.rand_like(x) < keep)  # here
            return x

    Good:
        def drop(x, keep=0.8, training=True):
            if training:
                return x * (torch.rand_like(x) < keep) / keep
            return x

    Fix: divide the mask by the kept share in training, or use nn.Dropout.
    """

    code = "EVAL006"
    words = ("rand",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `x * (rand < keep)` in a branch, in a function whose other branch returns the bare x."""
        for function in module.functions:
            returns = module.returns(function)
            bare = {node.value.id for node in returns if isinstance(node.value, ast.Name)}
            for node in returns:
                value = node.value
                if (
                    isinstance(value, ast.BinOp)
                    and isinstance(value.op, ast.Mult)
                    and _is_mask(module, value.right)
                ):
                    if isinstance(value.left, ast.Name) and value.left.id in bare:
                        yield At(
                            node,
                            "The mask is not divided by the kept share; otherwise x is returned as it is.",
                        )


def _is_mask(module: SourceModule, node: ast.expr) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    return any(
        isinstance(each, ast.Call) and module.qualify(each.func) in ("torch.rand", "torch.rand_like")
        for each in walk(node)
    )
