# SPDX-License-Identifier: Apache-2.0
"""Square roots, however they are written, and what is left of one."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import constant


def inner_of_root(module: SourceModule, node: ast.expr | None) -> ast.expr | None:
    """Return x of `torch.sqrt(x)`, `x.sqrt()` and `x ** 0.5`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and constant(node.right) == 0.5:
        return node.left
    if not isinstance(node, ast.Call):
        return None
    if module.qualify(node.func) == "torch.sqrt":
        return node.args[0] if node.args else None
    return node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "sqrt" else None


def rest_of(node: ast.expr | None) -> ast.expr | None:
    """Return x of `1 - x`."""
    is_difference = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    return node.right if is_difference and constant(node.left) in (1, 1.0) else None  # type: ignore[union-attr]
