# SPDX-License-Identifier: Apache-2.0
"""Weights that are written by a share of others: `average.lerp_(weight, 0.01)`, one by one or as a whole list."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truestep.doctor.source.memoized_walk import answered_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, method_of
from truestep.doctor.source.shared_weights import GIVING_WEIGHTS
from truestep.doctor.source.value_origins import argument, literal, resolve_expression

AVERAGED = "torch.optim.swa_utils.AveragedModel"
_GONE_THROUGH = ("items", "values", "keys", "list", "tuple", "iter")


class Weights(NamedTuple):
    """What gives some weights."""

    name: str
    """The variable that they are taken from: `average` of `average[k]`, and what a loop goes through."""
    model: str | None
    """The model, where it gives them itself."""


class WeightMixture(NamedTuple):
    """Weights, and the share of others that is written into them; None where the share can't be told."""

    node: ast.expr
    into: Weights
    of: Weights
    share: float | None


@answered_once
def weight_mixtures(module: SourceModule) -> list[WeightMixture]:
    """Return what writes a share of some weights into others."""
    return list(_find_mixtures(module))


def _find_mixtures(module: SourceModule) -> Iterator[WeightMixture]:
    for node, own, value, share in _weight_writes(module):
        into = _weights_of_node(module, own)
        for part, factor in _terms_with_factors(module, value, share):
            of = _weights_of_node(module, part)
            if into is not None and of is not None and of.name != into.name:
                yield WeightMixture(node, into, of, factor)
    for call in module.calls(AVERAGED):
        mean = resolve_expression(module, argument(call, 2, "avg_fn"))
        function = module.functions.named(mean) if isinstance(mean, ast.Name | ast.Attribute) else mean
        if not isinstance(function, ast.FunctionDef | ast.Lambda):
            continue
        names = [each.arg for each in function.args.args if each.arg != "self"]
        for value in module.functions.results(function) if len(names) > 1 else ():
            for part, share in _terms_with_factors(module, value, 1.0) if value is not None else ():
                if dotted_name(part) == names[1]:
                    yield WeightMixture(call, Weights(names[0], names[0]), Weights(names[1], None), share)


def _weight_writes(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr, ast.expr, float | None]]:
    """Yield the writing node, what it writes into, what it writes, and the factor of that."""
    for call in module.calls("torch._foreach_lerp_"):
        if len(call.args) > 1:
            yield call, call.args[0], call.args[1], _literal_number(module, argument(call, 2, "weight"))
    for call in module.method_calls("lerp_", "add_", "copy_"):
        assert isinstance(call.func, ast.Attribute)
        at, word = (1, "weight") if method_of(call) == "lerp_" else (None, "alpha")
        factor = argument(call, at, word)
        for given in call.args[:1]:
            yield call, call.func.value, given, 1.0 if factor is None else _literal_number(module, factor)
    for statement in module.all(ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Attribute) and target.attr == "data":
                yield target, target, statement.value, 1.0


def _terms_with_factors(
    module: SourceModule, node: ast.expr, factor: float | None
) -> list[tuple[ast.expr, float | None]]:
    """Return the terms of a sum with the factor of each."""
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return [*_terms_with_factors(module, left, factor), *_terms_with_factors(module, right, factor)]
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            number = _literal_number(module, left)
            known, rest = (number, right) if number is not None else (_literal_number(module, right), left)
            return _terms_with_factors(
                module, rest, None if known is None or factor is None else known * factor
            )
        case ast.Call(func=ast.Attribute(value=first, attr="lerp"), args=[*given]) if len(given) in (2, 3):
            start, end, weight = (
                given if len(given) == 3 else [first, *given]
            )  # torch.lerp(a, b, w), a.lerp(b, w)
            share = _literal_number(module, weight)
            shares = (
                (None, None) if share is None or factor is None else (factor * (1 - share), factor * share)
            )
            return [
                *_terms_with_factors(module, start, shares[0]),
                *_terms_with_factors(module, end, shares[1]),
            ]
    return [(node, factor)]


def _literal_number(module: SourceModule, node: ast.expr | None) -> float | None:
    match node:
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            first, second = _literal_number(module, left), _literal_number(module, right)
            return None if first is None or second is None else first - second
    value = literal(module, node)
    return value if isinstance(value, int | float) else None


def _weights_of_node(module: SourceModule, node: ast.expr) -> Weights | None:
    """Return where weights come from, past `.data`, a key, what writes into them, and the loop that goes through them."""
    while True:
        match node:
            case ast.Attribute(value=inner, attr="data") | ast.Subscript(value=inner):
                node = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name not in GIVING_WEIGHTS:
                node = inner
            case ast.Call(func=ast.Name(id=name), args=[inner]) if name in _GONE_THROUGH:
                node = inner
            case ast.Name() if (through := _iterated_expression(module, node)) is not None:
                node = through
            case _:
                break
    values = module.definitions(node) if isinstance(node, ast.Name | ast.Attribute) else [node]
    models = [
        ast.unparse(each.func.value)
        for each in values
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in GIVING_WEIGHTS
    ]
    model = models[0] if models else None
    taken = dotted_name(node) or model
    return Weights(taken, model) if taken is not None else None


def _iterated_expression(module: SourceModule, name: ast.Name) -> ast.expr | None:
    """Return what the loop of a variable goes through: of `zip(a, b)` the one at its place."""
    bindings = module.resolver.reaching(name)
    loop = module.parents[bindings[0].node] if bindings and bindings[0].how == "for" else None
    while isinstance(loop, ast.Tuple):
        loop = module.parents[loop]
    if not isinstance(loop, ast.For | ast.comprehension):
        return None
    through, target = loop.iter, loop.target
    if isinstance(through, ast.Call) and dotted_name(through.func) == "zip" and isinstance(target, ast.Tuple):
        at = [bindings[0].node in ast.walk(each) for each in target.elts].index(True)
        through = through.args[at] if at < len(through.args) else through
    return through
