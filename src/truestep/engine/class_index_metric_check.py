# SPDX-License-Identifier: Apache-2.0
"""A function to evaluate that gives back the classes that a model chooses: the mean of their numbers is no accuracy."""

import ast
from collections.abc import Callable
from inspect import isfunction
from typing import Any

import torch
from torch import Tensor

from truestep.core.source_lookup import WrittenFunction, function_node, unwrap_function
from truestep.core.user_frames import warn_user
from truestep.engine.update_call_errors import CORRECT

_SAME = ("float", "double", "long", "int", "to", "type", "cpu", "detach", "squeeze", "flatten", "view")
_DEEPEST = 4  # names that are made of names


def warn_of_class_numbers(values: Callable[[Any], Any], result: Any) -> None:
    """Warn where what a function returned are whole numbers above 1, and its source returns an argmax as it is."""
    if not isinstance(result, Tensor) or result.ndim == 0 or not result.numel():
        return
    if result.dtype == torch.bool or result.is_complex() or bool((result % 1).any()) or result.max() <= 1:
        return
    written = unwrap_function(values)
    function = function_node(written) if isfunction(written) else None
    if function is not None and any(
        _is_argmax_expression(each, function) for each in _returned_expressions(function)
    ):
        warn_user(
            "The function given to net.evaluate returns the classes that the model chooses, and a mean of their numbers is no "
            f"accuracy. Compare them with the labels: {CORRECT}"
        )


def _returned_expressions(function: WrittenFunction) -> list[ast.expr]:
    if isinstance(function, ast.Lambda):
        return [function.body]
    return [
        each.value for each in ast.walk(function) if isinstance(each, ast.Return) and each.value is not None
    ]


def _is_argmax_expression(node: ast.expr, function: ast.AST, depth: int = 0) -> bool:
    """Tell `net(x).argmax(1)`, `torch.max(net(x), 1)[1]` and `.indices`, under a name and as numbers of another type."""
    match node:
        case ast.Call(func=ast.Attribute(attr="argmax")):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in _SAME:
            return _is_argmax_expression(inner, function, depth)
        case (
            ast.Subscript(value=inner, slice=ast.Constant(value=1))
            | ast.Attribute(value=inner, attr="indices")
        ):
            return isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith(".max")
        case ast.Name(id=name) if depth < _DEEPEST:
            made = [
                each.value
                for each in ast.walk(function)
                if isinstance(each, ast.Assign) and any(ast.unparse(one) == name for one in each.targets)
            ]
            return len(made) == 1 and _is_argmax_expression(made[0], function, depth + 1)
    return False
