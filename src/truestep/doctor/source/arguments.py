# SPDX-License-Identifier: Apache-2.0
"""What a call gives for a parameter."""

import ast

from truestep.doctor.source.names import Function


def argument_for(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """Return the expression that a call gives for one parameter, or its default."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    positions = positional_parameters(function)
    if name in positions and positions.index(name) < len(call.args):
        before = call.args[: positions.index(name) + 1]
        return None if any(isinstance(each, ast.Starred) for each in before) else before[-1]
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    return parameter_default(function, name)


def bound_by_partial(function: Function, call: ast.Call, name: str) -> ast.expr | None:
    """Return the expression that `partial(function, ...)` gives for one parameter; None for what a later call gives."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    given = dict(zip(positional_parameters(function), call.args[1:], strict=False))
    return None if any(isinstance(each, ast.Starred) for each in call.args) else given.get(name)


def positional_parameters(function: Function) -> list[str]:
    """Return the parameters that a call can give by their places, without self."""
    names = [each.arg for each in [*function.args.posonlyargs, *function.args.args]]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def parameter_names(function: Function) -> list[str]:
    """Return the names of the parameters, self among them, but for `*args` and `**kwargs`."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [each.arg for each in every]


def parameters_given(function: Function, call: ast.Call, node: ast.AST | None) -> list[str]:
    """Return the parameters that a call gives an expression for."""
    return [name for name in parameter_names(function) if argument_for(function, call, name) is node]


def parameter_default(function: Function, name: str) -> ast.expr | None:
    """Return the default of a parameter."""
    given = function.args.kw_defaults
    by_place = parameter_names(function)[: -len(given) or None]
    defaults = dict(zip(reversed(by_place), reversed(function.args.defaults), strict=False))
    return (defaults | dict(zip((each.arg for each in function.args.kwonlyargs), given, strict=True))).get(
        name
    )


def arguments_of(function: Function, call: ast.Call) -> list[tuple[str, ast.expr, bool]]:
    """Return what a call gives for each parameter in sight, and whether it is the parameter's default."""
    defaults = {id(each) for each in [*function.args.defaults, *function.args.kw_defaults]}
    given = [(name, argument_for(function, call, name)) for name in parameter_names(function)]
    return [(name, node, id(node) in defaults) for name, node in given if node is not None]
