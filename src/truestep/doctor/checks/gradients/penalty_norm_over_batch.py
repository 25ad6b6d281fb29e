# SPDX-License-Identifier: Apache-2.0
"""The norm of a gradient penalty over all examples at once."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.flow import flows_to
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.penalties import penalties_in
from truestep.doctor.source.values import argument, forwards_all

# functions of a norm, with the position of its axes
_FUNCTIONS = {"torch.norm": 2, "torch.linalg.norm": 2, "torch.linalg.vector_norm": 2}
_SUMS = {"torch.sum": 1, "torch.mean": 1}


class PenaltyNormOverBatch(SourceCheck):
    """A gradient penalty compares one norm over the whole batch with its target, instead of each example's norm.

    Why: each example's slope is to be 1. Of a batch of n the norm is then about the root of n, so the penalty
    flattens the critic; examples that are too steep hide those that are too flat.

    Bad:
        def penalty(critic, z):
            z = z.requires_grad_(True)
            g = torch.autograd.grad(critic(z).sum(), z, create_graph=True)[0]
            return (g.norm(2) - 1) ** 2  # here

        (net(x).mean() + 10 * penalty(net, x)).backward()

    Good:
        def penalty(critic, z):
            z = z.requires_grad_(True)
            g = torch.autograd.grad(critic(z).sum(), z, create_graph=True)[0]
            return ((g.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

        (net(x).mean() + 10 * penalty(net, x)).backward()

    Fix: gradient.flatten(1).norm(2, dim=1), then the mean over the batch; or truestep.gradient_penalty.
    """

    code = "GRAD053"
    words = ("autograd",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a norm without axes of what autograd.grad gave, from which a number is subtracted."""
        for call in penalties_in(module):
            for norm in flows_to(module, call):
                if (
                    isinstance(norm, ast.expr)
                    and _is_norm_of_all(module, norm)
                    and _is_compared(module, norm)
                ):
                    yield At(norm, "This is one norm over all examples of the batch, not one of each.")


def _is_norm_of_all(module: SourceModule, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        half = isinstance(node.right, ast.Constant) and node.right.value == 0.5
        return half and _is_sum_of_all(module, node.left)
    if not isinstance(node, ast.Call) or forwards_all(node):
        return False
    name = module.qualify(node.func) or ""
    if name in _FUNCTIONS:
        return _has_no_axes(node, _FUNCTIONS[name]) and not _is_of_one(node.args[:1])
    if name == "torch.sqrt":
        return bool(node.args) and _is_sum_of_all(module, node.args[0])
    if isinstance(node.func, ast.Attribute) and not name:
        if node.func.attr == "norm":
            return _has_no_axes(node, 1) and not _is_of_one([node.func.value])
        return node.func.attr == "sqrt" and _is_sum_of_all(module, node.func.value)
    return False


def _is_sum_of_all(module: SourceModule, node: ast.expr) -> bool:
    """Tell `(g ** 2).sum()`, be it with a small number added."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_sum_of_all(module, node.left) or _is_sum_of_all(module, node.right)
    if isinstance(node, ast.Name):
        values = module.definitions(node)
        return len(values) == 1 and values[0] is not None and _is_sum_of_all(module, values[0])
    if not isinstance(node, ast.Call):
        return False
    name = module.qualify(node.func) or ""
    if name in _SUMS:
        return _has_no_axes(node, _SUMS[name])
    return isinstance(node.func, ast.Attribute) and node.func.attr == "sum" and _has_no_axes(node, 0)


def _has_no_axes(call: ast.Call, position: int) -> bool:
    return all(argument(call, position, word) is None for word in ("dim", "axis"))


def _is_of_one(given: list[ast.expr]) -> bool:
    """Tell `g[i]`: the gradient of one example."""
    return any(isinstance(each, ast.Subscript) and not isinstance(each.slice, ast.Constant) for each in given)


def _is_compared(module: SourceModule, norm: ast.expr) -> bool:
    """Tell whether a number is subtracted from the norm, or it from a number."""
    for each in flows_to(module, norm):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub):
            if isinstance(each.left, ast.Constant) or isinstance(each.right, ast.Constant):
                return True
    return False
