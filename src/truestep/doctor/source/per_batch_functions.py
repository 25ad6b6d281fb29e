# SPDX-License-Identifier: Apache-2.0
"""The functions that run once for each batch, and what they keep from one batch to the next."""

import ast

from truestep.doctor.source.libraries import gives_loss
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function


def is_once_for_each_batch(module: SourceModule, function: Function) -> bool:
    """Tell a function that a library calls with each batch, or that is called in a loop."""
    if gives_loss(module, function):
        return True
    entered = module.program.entered_from(function)
    calls = {*module.functions.callers(function), *(each for each in entered if isinstance(each, ast.Call))}
    return function in entered or any(module.home(each).loop(each) is not None for each in calls)


_MAX_NAMES = 3  # from a name for a part of an object to the object


def outlives_its_call(module: SourceModule, place: ast.expr, names: int = 0) -> bool:
    """Tell a place that is there before its function is called and after: an attribute of what it was given, a global."""
    root, is_part = place, False
    if isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute):
        root = root.func.value  # `log.setdefault("loss", [])`
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root, is_part = root.value, True
    if not isinstance(root, ast.Name):
        return False
    function = module.scope(place)
    if module.names.owner(root.id, function) is not function:
        return True
    if all(each.how == "parameter" for each in module.names.bindings(root)):
        return is_part
    others = module.definitions(root) if names < _MAX_NAMES else []  # `state = engine.state`
    return bool(others) and all(
        isinstance(each, (ast.Attribute, ast.Subscript)) and outlives_its_call(module, each, names + 1)
        for each in others
    )
