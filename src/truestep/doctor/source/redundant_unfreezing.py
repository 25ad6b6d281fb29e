# SPDX-License-Identifier: Apache-2.0
"""What is trained as it was made, so that to say it once more changes nothing: two checks ask."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name
from truestep.doctor.source.value_origins import argument, constant

_HOLDERS = ("Sequential", "ModuleList", "ModuleDict")


def is_redundant_requires_grad(module: SourceModule, statement: ast.Assign, target: ast.Attribute) -> bool:
    """Tell `net.fc.requires_grad = True` behind `net.fc = nn.Linear(4, 2)`, where nothing between freezes anything."""
    place = dotted_name(target.value)
    if constant(statement.value) is not True or place is None:
        return False
    made = [
        each
        for each in module.all(ast.Assign)
        if place in map(dotted_name, each.targets)
        and module.scope(each) is module.scope(statement)
        and each.lineno < statement.lineno
    ]
    return (
        bool(made)
        and is_trained_as_made(module, made[-1].value)
        and not _can_be_frozen(module, made[-1], statement)
    )


def is_trained_as_made(module: SourceModule, value: ast.expr) -> bool:
    """Tell a layer of torch's that is made here, or several of them in a holder, and a parameter: they are trained."""
    name = module.qualify(value.func) or "" if isinstance(value, ast.Call) else ""
    short = name.rsplit(".", 1)[-1]
    if not isinstance(value, ast.Call) or name not in (f"torch.nn.{short}", "torch.nn.parameter.Parameter"):
        return False
    if short == "Parameter":
        return constant(argument(value, 1, "requires_grad")) is not False
    given = [part for each in value.args for part in (each.elts if isinstance(each, ast.List) else [each])]
    return short[:1].isupper() and (
        short not in _HOLDERS or all(is_trained_as_made(module, each) for each in given)
    )


def _can_be_frozen(module: SourceModule, made: ast.Assign, statement: ast.Assign) -> bool:
    """Tell whether anything may freeze what was made before that line: a word of gradients, or a call that is given it."""
    owner = (dotted_name(made.targets[0]) or "").partition(".")[0]
    between = [
        each
        for each in module.all(ast.Attribute, ast.Call)
        if made.lineno < each.lineno < statement.lineno and module.scope(each) is module.scope(made)
    ]
    for each in between:
        if isinstance(each, ast.Attribute) and each.attr.startswith("requires_grad"):
            above = module.parents.get(each)
            stored = module.statement(each)
            value = (
                above.args[0]
                if isinstance(above, ast.Call) and above.args
                else getattr(stored, "value", None)
            )
            if constant(value) is not True:
                return True
        given = [*each.args, *(kept.value for kept in each.keywords)] if isinstance(each, ast.Call) else []
        if any(isinstance(part, ast.Name) and part.id == owner for part in given):
            return True
        called = module.functions.target(each) if isinstance(each, ast.Call) else None
        if called is not None and any(
            part.attr.startswith("requires_grad") for part in module.inside(called, ast.Attribute)
        ):
            return True
    return False
