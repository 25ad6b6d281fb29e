# SPDX-License-Identifier: Apache-2.0
"""What a number counts where a training accumulates: batches, or updates of the optimizer.

`len(loader)` counts batches; divided by the number of batches in an update it counts updates; a counter counts what
the test above it lets through.
"""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Scope, dotted, last_part, one_of, stored_in, walk
from truestep.doctor.source.once import answered_once, asked_once, each_once

BATCHES, UPDATES = "batches", "updates"
_KEEPS = ("int", "round", "max", "min", "ceil", "floor", "float")
_ACCUMULATION = re.compile(r"accum", re.IGNORECASE)
_EXAMPLES = re.compile(r"batch_size|bsz|examples|samples|tokens", re.IGNORECASE)
_WINDOW = re.compile(r"accum|sync_gradients|update_step|should_step", re.IGNORECASE)


@asked_once(None)
def counted_unit(module: SourceModule, node: ast.expr, depth: int = 0) -> str | None:
    """Return what a number counts, where every way to it says the same."""
    match node:
        case ast.Call():
            return _of_call(module, node, depth)
        case ast.BinOp():
            return _of_operation(module, node, depth)
        case ast.Name() | ast.Attribute():
            return _of_name(module, node, depth)
    return None


def _of_call(module: SourceModule, call: ast.Call, depth: int) -> str | None:
    name = last_part(call.func)
    if name == "len" and len(call.args) == 1:
        return BATCHES if module.kind(call.args[0]) == "loader" else None
    if name in _KEEPS and call.args:
        return one_of({counted_unit(module, each, depth + 1) for each in call.args} - {None})
    return None


def _of_operation(module: SourceModule, node: ast.BinOp, depth: int) -> str | None:
    left, right = counted_unit(module, node.left, depth + 1), counted_unit(module, node.right, depth + 1)
    match node.op:
        case ast.Mult() if is_accumulation(node.left) or is_accumulation(node.right):
            other = node.left if is_accumulation(node.right) else node.right
            return None if _EXAMPLES.search(ast.unparse(other)) else BATCHES
        case ast.Div() | ast.FloorDiv() if is_accumulation(node.right):
            return UPDATES if left == BATCHES else None
        case ast.Div() | ast.FloorDiv():
            return left if right is None else None
        case ast.Mult() | ast.Add() | ast.Sub():
            return left if right is None or left == right else right if left is None else None
        case ast.Mod():
            return left
    return None


def is_accumulation(node: ast.expr) -> bool:
    """Tell the number of batches in an update, by its name."""
    return bool(_ACCUMULATION.search(last_part(node)))


def _of_name(module: SourceModule, node: ast.Name | ast.Attribute, depth: int) -> str | None:
    if (counted := _counted_by(module, node)) is not None:
        return counted
    return one_of(counted_unit(module, value, depth + 1) for value in given(module, node))


def given(module: SourceModule, node: ast.expr) -> Iterator[ast.expr]:
    """Yield what a name or `args.steps` is given in this function, or by its callers, but for None and numbers."""
    stores = _stores(module, node)
    for statement in stores:
        if isinstance(statement, ast.Assign) and not isinstance(statement.value, ast.Constant):
            yield statement.value
    if not stores and isinstance(node, ast.Name):  # what the callers give
        yield from (each for each in module.definitions(node) if each and not isinstance(each, ast.Constant))


def _stores(module: SourceModule, node: ast.expr) -> list[ast.Assign | ast.AugAssign]:
    place, scope = dotted(node), module.scope(node)
    if isinstance(node, ast.Name):  # an inner function may read what the one around it counts
        scope = module.names.owner(node.id, scope) or scope
    return _stores_in(module.home(node), scope).get(place, []) if place else []


@answered_once
def _stores_in(home: SourceModule, scope: Scope) -> dict[str, list[ast.Assign | ast.AugAssign]]:
    found: dict[str, list[ast.Assign | ast.AugAssign]] = {}
    plain: list[ast.Assign | ast.AugAssign] = [*home.directly_in(scope, ast.Assign)]
    for each in [*plain, *home.directly_in(scope, ast.AugAssign)]:
        if (stored := dotted(stored_in(each))) is not None:
            found.setdefault(stored, []).append(each)
    return found


def _counted_by(module: SourceModule, node: ast.expr) -> str | None:
    """Return what `step += 1` counts: the updates, under a test of the window."""
    added = [
        each
        for each in _stores(module, node)
        if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Add)
    ]
    ones = [each for each in added if isinstance(each.value, ast.Constant) and each.value.value == 1]
    if not ones or len(ones) != len(added):
        return None
    return UPDATES if all(_is_in_window(module, each) for each in ones) else None


def _is_in_window(module: SourceModule, node: ast.AST) -> bool:
    tests = [
        above.test
        for above in module.ancestors(node)
        if isinstance(above, ast.If) and any(node is each or node in walk(each) for each in above.body)
    ]
    return any(_WINDOW.search(ast.unparse(each)) for each in tests)


def counts_batches(module: SourceModule, node: ast.expr) -> bool:
    """Tell a number of batches that nothing divides, be it by a number whose name says nothing."""
    values = each_once([node], lambda each: _made_of(module, each))
    divided = any(isinstance(each, (ast.Div, ast.FloorDiv)) for value in values for each in walk(value))
    return not divided and counted_unit(module, node) == BATCHES


def _made_of(module: SourceModule, value: ast.expr) -> Iterator[ast.expr]:
    """Yield what the names in an expression are given."""
    for part in walk(value):
        if isinstance(part, (ast.Name, ast.Attribute)):
            yield from given(module, part)
