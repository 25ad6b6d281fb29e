# SPDX-License-Identifier: Apache-2.0
"""Penalties on gradients: what is computed of the result of torch.autograd.grad alone, as its norm."""

import ast
from collections.abc import Iterator

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import constant, literal

_POWERS = ("pow", "square", "norm", "abs", "vector_norm", "matrix_norm")
_SIZES = ("size", "len", "numel")
MAX_NAMES = 4  # one behind the other


def penalties_of(module: SourceModule, gradient: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
    """Yield the powers and norms of a gradient, with what is computed of them alone."""
    current, is_power = gradient, False
    while isinstance(parent := module.parents[current], ast.expr) and _is_of_it_alone(
        module, parent, current
    ):
        current, is_power = parent, is_power or _is_power(parent)
    if is_power:
        yield current
    elif isinstance(parent, ast.Assign) and depth < MAX_NAMES:
        for name in _names(parent):
            for read in module.reads(name):
                if isinstance(read, ast.Name) and current in module.resolver.given_whole_or_in_part(read):
                    yield from penalties_of(module, read, depth + 1)


def _names(made: ast.Assign) -> Iterator[str]:
    """Yield the names that take the value, or a part of it: `gradient, = ...`."""
    for target in made.targets:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        yield from (each.id for each in parts if isinstance(each, ast.Name))


def _is_of_it_alone(module: SourceModule, parent: ast.expr, node: ast.expr) -> bool:
    match parent:
        case ast.Subscript(value=value):
            return value is node
        case ast.Attribute() | ast.UnaryOp():
            return True
        case ast.BinOp(left=left, right=right):
            other = right if left is node else left
            return isinstance(constant(other), (int, float)) or isinstance(
                literal(module, other), (int, float)
            )
        case ast.Call(func=function):
            others = [each for each in parent.args if each is not node]
            is_torch = function is node or (module.qualify(function) or "").startswith("torch.")
            return is_torch and all(map(_is_of_sizes, others))
    return False


def _is_of_sizes(node: ast.expr) -> bool:
    """Tell an argument that no model has a part in: numbers, and sizes of a tensor."""
    calls = [each.func for each in walk(node) if isinstance(each, ast.Call)]
    return all(getattr(each, "attr", getattr(each, "id", "")) in _SIZES for each in calls)


def _is_power(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Pow)
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _POWERS
