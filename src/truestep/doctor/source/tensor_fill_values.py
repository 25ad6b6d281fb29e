# SPDX-License-Identifier: Apache-2.0
"""What a tensor holds where it is read: the number that it was made of, or filled with in place since."""

import ast
from collections.abc import Hashable
from typing import NamedTuple

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, last_part
from truestep.doctor.source.value_origins import argument, constant, literal, unwrap_expression

_MOST_STEPS = 6  # from a name to the number that it holds
_MADE_OF = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "zero_": 0, "ones": 1, "ones_like": 1, "new_ones": 1}
_FILLED_WITH = {
    "full": (1, "fill_value"),
    "full_like": (1, "fill_value"),
    "new_full": (1, "fill_value"),
    "fill_": (0, "value"),
    "copy_": (0, "src"),
    "Variable": (0, "data"),
}
_MAY_NOT_RUN = ast.If | ast.For | ast.While | ast.Try | ast.Match | ast.IfExp


class TensorFill(NamedTuple):
    """What a tensor holds, in the words of the source, and what tells it from another tensor under the same name."""

    shown: str
    identity: Hashable


def tensor_fill(module: SourceModule, node: ast.expr, steps: int = 0) -> TensorFill | None:
    """Return what a tensor holds where it is read; None where something wrote to it that can't be told."""
    number = literal(module, node)
    if isinstance(number, (int, float)):
        return TensorFill(f"{number:g}", float(number))
    node = unwrap_expression(node)
    if isinstance(node, ast.Call):
        name = last_part(node.func)
        if name in _MADE_OF:
            return TensorFill(str(_MADE_OF[name]), float(_MADE_OF[name]))
        value = argument(node, *_FILLED_WITH[name]) if name in _FILLED_WITH else None
        if value is not None and steps < _MOST_STEPS:
            return tensor_fill(module, value, steps + 1)
    if dotted_name(node) is None:
        return TensorFill(ast.unparse(node), _identity(module, node))
    return _fill_under_name(module, node, steps)


def _identity(module: SourceModule, node: ast.expr) -> Hashable:
    """Return the text of an expression with where each of its names gets its value."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    return ast.unparse(node), tuple(
        frozenset(map(id, filter(None, module.definitions(each)))) for each in names
    )


def _fill_under_name(module: SourceModule, node: ast.expr, steps: int) -> TensorFill | None:
    writes, made = _writes_and_assignments(module, node)
    before = [each for each in writes if made < each.lineno < node.lineno]
    if before:
        last = max(before, key=lambda each: each.lineno)
        above = set(module.ancestors(node))
        is_certain = all(each in above for each in module.ancestors(last) if isinstance(each, _MAY_NOT_RUN))
        value = _value_written(last) if is_certain and steps < _MOST_STEPS else None
        return None if value is None else tensor_fill(module, value, steps + 1)
    if any(_comes_round(module, each, node, made) for each in writes):
        return None
    values = module.definitions(node)
    only = values[0] if len(values) == 1 else None
    if isinstance(only, ast.Call) and steps < _MOST_STEPS:
        found = tensor_fill(module, only, steps + 1)
        return (
            found
            if found is not None and isinstance(found.identity, float)
            else TensorFill(ast.unparse(node), id(only))
        )
    return TensorFill(ast.unparse(node), _identity(module, node))


def _comes_round(module: SourceModule, write: ast.stmt, node: ast.expr, made: int) -> bool:
    """Tell a write further down in a loop that the tensor was made before: the next iteration reads it."""
    loops = [each for each in module.ancestors(write) if isinstance(each, (ast.For, ast.While))]
    above = set(module.ancestors(node))
    return write.lineno > node.lineno and any(each in above and made < each.lineno for each in loops)


def _writes_and_assignments(module: SourceModule, node: ast.expr) -> tuple[list[ast.stmt], int]:
    """Return the statements of this function that write into a tensor, and the last line before that gives the name another one."""
    text, scope = ast.unparse(node), module.scope(node)
    writes: list[ast.stmt] = []
    made = 0
    for statement in module.directly_in(scope, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Subscript) and ast.unparse(unwrap_expression(target)) == text:
                writes.append(statement)
            elif any(ast.unparse(each) == text for each in ast.walk(target) if isinstance(each, ast.expr)):
                made = max(made, statement.lineno) if statement.lineno < node.lineno else made
    writes += [
        each
        for each in module.directly_in(scope, ast.AugAssign)
        if ast.unparse(unwrap_expression(each.target)) == text
    ]
    for call in module.directly_in(scope, ast.Call):
        written = call.func.value if isinstance(call.func, ast.Attribute) else None
        name = last_part(call.func) or ""
        if written is not None and name.endswith("_") and _tensor_written(written) == text:
            writes.append(module.statement(call))
    return writes, made


def _tensor_written(written: ast.expr) -> str:
    """Return the text of x for `x.data`, `x[:4]` and `x.resize_(4)`."""
    while isinstance(written, ast.Call) and isinstance(written.func, ast.Attribute):
        written = written.func.value
    return ast.unparse(unwrap_expression(written))


def _value_written(statement: ast.stmt) -> ast.expr | None:
    """Return the call, or the value, by which a statement fills a whole tensor."""
    match statement:
        case ast.Assign(targets=[ast.Subscript(slice=where)], value=value) if _is_whole(where):
            return value
        case (
            ast.Expr(value=ast.Call(func=ast.Attribute(value=written, attr=name)) as call)
            | ast.Assign(value=ast.Call(func=ast.Attribute(value=written, attr=name)) as call)
        ):
            filled = name in _MADE_OF or name in _FILLED_WITH
            parts = [each.slice for each in ast.walk(written) if isinstance(each, ast.Subscript)]
            return call if filled and all(map(_is_whole, parts)) else None
    return None


def _is_whole(where: ast.expr) -> bool:
    """Tell `x[:]` and `x[...]`."""
    match where:
        case ast.Slice(lower=None, upper=None, step=None):
            return True
    return constant(where) is ...
