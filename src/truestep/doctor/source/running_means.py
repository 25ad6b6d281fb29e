# SPDX-License-Identifier: Apache-2.0
"""Totals of a loop that are divided within it, now and then: how many turns they hold, and by what they are divided."""

import ast
from collections.abc import Iterator

from truestep.doctor.library.operations import SAME_NUMBERS
from truestep.doctor.source.integer_values import whole_number
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name
from truestep.doctor.source.value_origins import constant


def divisions_in(module: SourceModule) -> Iterator[tuple[ast.BinOp | ast.AugAssign, ast.expr, ast.expr]]:
    """Yield each `a / b` and `a /= b`, with what is divided and by what."""
    for quotient in module.all(ast.BinOp):
        if isinstance(quotient.op, ast.Div):
            yield quotient, quotient.left, quotient.right
    for division in module.all(ast.AugAssign):
        if isinstance(division.op, ast.Div):
            yield division, division.target, division.value


def additions_each_turn(module: SourceModule, loop: ast.For, name: str, before: int) -> list[ast.AugAssign]:
    """Return what adds to a total in each turn of a loop, before a line; none where a turn may pass over it."""
    added = [
        each
        for each in module.inside(loop, ast.AugAssign)
        if dotted_name(each.target) == name and isinstance(each.op, ast.Add)
    ]
    passed = any(each.lineno < before for each in module.inside(loop, ast.Continue))
    always = all(_is_run_each_turn(module, loop, each) and each.lineno < before for each in added)
    return added if always and not passed else []


def _is_run_each_turn(module: SourceModule, loop: ast.For, node: ast.stmt) -> bool:
    above = module.parents[node]
    while isinstance(above, ast.With):
        above = module.parents[above]
    return above is loop


def divisor_of_period(module: SourceModule, division: ast.AST, name: str, divisor: ast.expr) -> int | None:
    """Return after how many turns a total is divided and set back to 0, where it is divided by another number."""
    given, loop = whole_number(module, divisor), module.loop(division)
    if given is None or given < 2 or loop is None:
        return None
    for around in _tests_within(module, division, loop):
        resets = [
            each
            for each in module.inside(around, ast.Assign)
            if dotted_name(each.targets[0]) == name and constant(each.value) in (0, 0.0)
        ]
        moduli = [each for each in module.inside(around.test, ast.BinOp) if isinstance(each.op, ast.Mod)]
        period = whole_number(module, moduli[0].right) if len(moduli) == 1 and resets else None
        if period is not None and period != given:
            return period
    return None


def is_one_turn_more(module: SourceModule, division: ast.AST, divisor: ast.expr) -> bool:
    """Tell `if i == n: total / n` where i counts from 0: n + 1 turns are over then."""
    loop = module.loop(division)
    call = loop.iter if isinstance(loop, ast.For) else None
    target = loop.target if isinstance(loop, ast.For) else None
    if not isinstance(call, ast.Call) or module.qualify(call.func) != "enumerate" or len(call.args) != 1:
        return False
    if call.keywords or not isinstance(target, ast.Tuple) or not isinstance(target.elts[0], ast.Name):
        return False
    wanted = ast.unparse(divisor)
    return any(
        isinstance(each.test, ast.Compare)
        and dotted_name(each.test.left) == target.elts[0].id
        and isinstance(each.test.ops[0], ast.Eq)
        and ast.unparse(each.test.comparators[0]) == wanted
        for each in _tests_within(module, division, loop)
    )


def _tests_within(module: SourceModule, node: ast.AST, loop: ast.AST | None) -> Iterator[ast.If]:
    for above in module.ancestors(node):
        if above is loop:
            return
        if isinstance(above, ast.If):
            yield above


def unwrap_number(node: ast.expr) -> ast.expr:
    """Return x for `x.item()`, `float(x)` and `x.detach().cpu()`."""
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute):
            if node.attr != "data":
                break
            node = node.value
        elif isinstance(node.func, ast.Attribute) and node.func.attr in SAME_NUMBERS and not node.args:
            node = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id == "float" and node.args:
            node = node.args[0]
        else:
            break
    return node
