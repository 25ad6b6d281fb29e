# SPDX-License-Identifier: Apache-2.0
"""Penalties on a gradient: what is differentiated, at which points, and what is made of the gradient."""

import ast
from collections.abc import Iterator

from truestep.doctor.source.flow import goes_backward
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import argument, behind, forwards_all, literal, seen_through

_SAME_POINT = (
    "requires_grad_",
    "detach",
    "clone",
    "to",
    "cuda",
    "float",
    "view",
    "reshape",
    "data",
    "type",
    "contiguous",
)
_WRAPPERS = ("torch.autograd.Variable", "torch.Tensor.requires_grad_")


def penalties_in(module: SourceModule) -> Iterator[ast.Call]:
    """Yield each `torch.autograd.grad(..., create_graph=True)` by the inputs of a net that a loss is made of."""
    for call in module.calls("torch.autograd.grad"):
        points = argument(call, 1, "inputs")
        asked = literal(module, argument(call, 4, "create_graph"))
        if forwards_all(call) or points is None or _is_of_weights(points) or asked is not True:
            continue
        if goes_backward(module, call):
            yield call


def _is_of_weights(points: ast.expr) -> bool:
    text = ast.unparse(points)
    return "param" in text or "weight" in text


def nets_of(module: SourceModule, penalty: ast.Call) -> set[Class]:
    """Return the classes of the nets that are differentiated, as far as they are in sight."""
    outputs = argument(penalty, 0, "outputs")
    found = {module.class_of(each.func) for each in behind(module, outputs)} if outputs is not None else set()
    return {each for each in found if each is not None}


def points_of(module: SourceModule, penalty: ast.Call) -> ast.expr | None:
    """Return the expression that computes the points at which the gradient is taken."""
    node = argument(penalty, 1, "inputs")
    for _ in range(2 * MAX_DEPTH):
        inner = _unwrapped(module, node)
        if inner is node:
            break
        node = inner
    return node


def _unwrapped(module: SourceModule, node: ast.expr | None) -> ast.expr | None:
    if isinstance(node, ast.Call):
        if module.qualify(node.func) in _WRAPPERS and node.args:
            return node.args[0]
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_POINT:
            return node.func.value
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1:
        return node.elts[0]
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        others = [each for each in module.definitions(node) if not _is_itself(each, node)]
        return others[0] if len(others) == 1 and others[0] is not None else node
    return seen_through(module, node)


def _is_itself(value: ast.expr | None, node: ast.expr) -> bool:
    """Tell `x = x.requires_grad_()` in a loop, which says nothing new of x."""
    return value is node


def mixing_weights(module: SourceModule, points: ast.expr | None) -> list[ast.expr]:
    """Return the weight of `a * x + (1 - a) * y`, of `y + a * (x - y)`, of `lerp(y, x, a)`."""
    match points:
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            found = [each for side in (left, right) for each in _factors(module, side)]
            others = [each for each in found if not _is_rest(each)]
            is_mix = any(_is_rest(each) for each in found) or _has_difference(left) or _has_difference(right)
            return others if is_mix else []
        case ast.Call() if module.qualify(points.func) == "torch.lerp" or _method(points) == "lerp":
            position = 2 if module.qualify(points.func) == "torch.lerp" else 1
            weight = argument(points, position, "weight")
            return [weight] if weight is not None else []
    return []


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _factors(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Name) and (made := seen_through(module, node)) is not None:
        node = made
    return [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else []


def _is_rest(node: ast.expr) -> bool:
    """Tell `1 - a`."""
    return (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant)
    )


def _has_difference(node: ast.expr) -> bool:
    sides = [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else []
    return any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) for each in sides)
