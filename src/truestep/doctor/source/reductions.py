# SPDX-License-Identifier: Apache-2.0
"""Whether a number is the mean of a batch."""

import ast

from truestep.doctor.library.operations import SAME_NUMBERS
from truestep.doctor.source.classes import MAX_DEPTH
from truestep.doctor.source.losses import losses_of, reduction_of
from truestep.doctor.source.module import SourceModule

_SAME = SAME_NUMBERS


def is_mean(module: SourceModule, node: ast.expr, depth: int = 0) -> bool:
    """Tell whether an expression is a mean over a batch, or a sum of such, on every way to it."""
    if depth > MAX_DEPTH:
        return False
    match node:
        case ast.Call(func=ast.Attribute(attr=method)) if method in _SAME:
            return is_mean(module, node.func.value, depth + 1)  # type: ignore[attr-defined]
        case ast.Call():
            return _is_mean_call(module, node)
        case ast.BinOp(op=ast.Add()):
            return is_mean(module, node.left, depth + 1) and is_mean(module, node.right, depth + 1)
        case ast.BinOp(op=ast.Div()):
            return _is_sum(module, node.left) and _is_sum(module, node.right)
        case ast.BinOp(op=ast.Mult()):
            return isinstance(node.left, ast.Constant) and is_mean(module, node.right, depth + 1)
        case ast.Name():
            return _is_mean_name(module, node, depth)
    return False


def _is_mean_call(module: SourceModule, call: ast.Call) -> bool:
    if module.qualify(call.func) == "torch.mean":
        return len(call.args) == 1 and not call.keywords
    if isinstance(call.func, ast.Attribute) and call.func.attr == "mean":
        return not call.args and not call.keywords
    key = (is_mean, module)
    if key not in module.remembered:
        module.remembered[key] = set(losses_of(module))
    return call in module.remembered[key] and reduction_of(module, call) in (None, "mean")


def _is_mean_name(module: SourceModule, name: ast.Name, depth: int) -> bool:
    bindings = module.resolver.reaching(name)
    own = [each for each in bindings if each.value is not None and not _is_zero(each.value)]
    known = all(each.how in ("assign", "augmented") for each in bindings)
    given = [each.value for each in own if each.value is not None and not _reads_itself(each.value, name.id)]
    return known and bool(given) and all(is_mean(module, each, depth + 1) for each in given)


def _reads_itself(value: ast.expr, name: str) -> bool:
    """Tell `loss = loss.to(device)`; a value that is computed from the one before is judged by its form."""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _SAME
        and (isinstance(value.func.value, ast.Name) and value.func.value.id == name)
    )


def _is_zero(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value == 0


def _is_sum(module: SourceModule, node: ast.expr) -> bool:
    """Tell `x.sum()` and `torch.sum(x)`."""
    if not isinstance(node, ast.Call):
        return False
    if module.qualify(node.func) == "torch.sum":
        return len(node.args) == 1 and not node.keywords
    return (
        isinstance(node.func, ast.Attribute)
        and node.func.attr == "sum"
        and not node.args
        and not node.keywords
    )
