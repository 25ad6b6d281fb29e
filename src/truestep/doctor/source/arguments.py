# SPDX-License-Identifier: Apache-2.0
"""What a call gives for a parameter."""

import ast

from truestep.doctor.source.names import Function


def argument_for(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """Return the expression that a call gives for one parameter, or its default."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positions = _positions(function)
    if name in positions and positions.index(name) < len(call.args):
        before = call.args[: positions.index(name) + 1]
        return None if any(isinstance(each, ast.Starred) for each in before) else before[-1]
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    return default_of(function, name)


def bound_by_partial(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """Return the expression that `partial(function, ...)` gives for one parameter; None for what a later call gives."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    given = dict(zip(_positions(function), call.args[1:], strict=False))
    return None if any(isinstance(each, ast.Starred) for each in call.args) else given.get(name)


def _positions(function: Function) -> list[str]:
    """Return the parameters that a call gives by their places."""
    positional = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
    return positional[1:] if positional[:1] in (["self"], ["cls"]) else positional


def default_of(function: Function, name: str) -> ast.expr | None:
    """Return the default of a parameter."""
    positional = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
    defaults = dict(zip(reversed(positional), reversed(function.args.defaults), strict=False))
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    defaults |= {argument.arg: default for argument, default in named if default is not None}
    return defaults.get(name)


def arguments_of(function: Function, call: ast.Call) -> list[tuple[str, ast.expr, bool]]:
    """Return what a call gives for each parameter in sight, and whether it is the parameter's default."""
    named = function.args
    defaults = {id(each) for each in [*named.defaults, *named.kw_defaults]}
    given = [
        (each.arg, argument_for(function, call, each.arg))
        for each in [*named.posonlyargs, *named.args, *named.kwonlyargs]
    ]
    return [(name, node, id(node) in defaults) for name, node in given if node is not None]
