# SPDX-License-Identifier: Apache-2.0
"""What a loss is a sum of: its terms with their signs, through names, averages and weights."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import constant

_AVERAGES = ("mean", "sum", "nanmean")
_SHAPES = ("squeeze", "unsqueeze", "view", "reshape", "flatten", "float", "to", "clone")
_OF_TORCH = tuple(f"torch.{name}" for name in _AVERAGES)


@dataclass(frozen=True)
class Term:
    """One summand: its expression, +1 or -1, what it is multiplied by, and whether it is averaged over a batch."""

    node: ast.expr
    sign: int
    factors: tuple[ast.expr, ...] = ()
    averaged: bool = False


def terms_of(module: SourceModule, node: ast.expr) -> list[Term]:
    """Return the terms of a value that is computed here; one that nothing splits further is its own only term."""
    return list(_terms(module, Term(node, 1), 0))


def _terms(module: SourceModule, term: Term, depth: int) -> Iterator[Term]:
    if depth > MAX_DEPTH:
        yield term
        return
    parts = _split(module, term)
    if parts is None:
        yield term
        return
    for each in parts:
        yield from _terms(module, each, depth + 1)


def _split(module: SourceModule, term: Term) -> list[Term] | None:
    """Return what a term is a sum of, one step back; None where it is no sum."""
    match term.node:
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
            turned = -1 if isinstance(term.node.op, ast.Sub) else 1
            return [_with(term, left), _with(term, right, turned)]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return [_with(term, inner, -1)]
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _of_product(term, left, right)
        case ast.BinOp(op=ast.Div(), left=left):
            return [_with(term, left)]
        case ast.Call():
            found = _averaged(module, term.node)
            if found is not None:
                return [Term(found[0], term.sign, term.factors, term.averaged or found[1])]
        case ast.Name():
            value = value_here(module, term.node)
            return [_with(term, value)] if value is not None else None
    return None


def _of_product(term: Term, left: ast.expr, right: ast.expr) -> list[Term] | None:
    """Only a number that is written tells the sign of a product; any other factor is taken for a weight."""
    for weight, inner in ((left, right), (right, left)):
        value = constant(weight)
        if isinstance(value, int | float) and value != 0:
            return [_with(term, inner, 1 if value > 0 else -1, weight)]
    for weight, inner in ((left, right), (right, left)):
        if isinstance(weight, ast.Name | ast.Attribute) and isinstance(
            inner, ast.BinOp | ast.Call | ast.UnaryOp
        ):
            return [_with(term, inner, 1, weight)]
    if isinstance(left, ast.Name | ast.Attribute) and isinstance(right, ast.Name | ast.Attribute):
        return [_with(term, right, 1, left)]
    return None


def _with(term: Term, node: ast.expr, sign: int = 1, factor: ast.expr | None = None) -> Term:
    factors = (*term.factors, factor) if factor is not None else term.factors
    return Term(node, term.sign * sign, factors, term.averaged)


def _averaged(module: SourceModule, call: ast.Call) -> tuple[ast.expr, bool] | None:
    """Return what an average is taken of, or what is only given another shape."""
    if module.qualify(call.func) in _OF_TORCH and call.args:
        return call.args[0], True
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in (*_AVERAGES, *_SHAPES) and module.qualify(call.func) is None:
        return call.func.value, method in _AVERAGES  # type: ignore[attr-defined]
    return None


def value_here(module: SourceModule, name: ast.Name) -> ast.expr | None:
    """Return the one expression of its own function that a name stands for."""
    made = module.resolver.reaching(name)
    if len(made) != 1 or made[0].how != "assign":
        return None
    scope = module.scope(name)
    same = made[0].value is not None and module.scope(made[0].value) is scope
    return made[0].value if same and (isinstance(scope, Function | ast.Module)) else None
