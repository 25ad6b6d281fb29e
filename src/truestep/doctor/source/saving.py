# SPDX-License-Identifier: Apache-2.0
"""Where a program writes checkpoints: what is called, on what, and to which path."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted
from truestep.doctor.source.values import argument

_MOST_CALLS = 3  # of one function by the other


@dataclass(frozen=True)
class Written:
    """A call that writes a file: the call, the expression of its path, and what it writes."""

    call: ast.Call
    path: ast.expr
    what: ast.expr


def written_by(module: SourceModule, call: ast.Call) -> Written | None:
    """Return what a call writes: `torch.save(x, path)`, or a function of the program that hands its path to one."""
    if module.qualify(call.func) == "torch.save":
        what, path = argument(call, 0, "obj"), argument(call, 1, "f")
        return Written(call, path, what) if what is not None and path is not None else None
    function = module.target(call) if "save" in (dotted(call.func) or "") else None
    name = _path_parameter(module, function, 0) if function is not None else None
    if function is None or name is None:
        return None
    path = module.argument_for(function, call, name)
    what = call.func.value if isinstance(call.func, ast.Attribute) else (call.args or [call.func])[0]
    return Written(call, path, what) if path is not None else None


def _path_parameter(module: SourceModule, function: Function, depth: int) -> str | None:
    """Return the parameter that a function hands on as the path of what it writes, as it is."""
    home = module.home(function)
    names = {each.arg for each in [*function.args.args, *function.args.kwonlyargs]}
    for call in home.inside(function, ast.Call):
        path: ast.expr | None = None
        if home.qualify(call.func) == "torch.save":
            path = argument(call, 1, "f")
        elif depth < _MOST_CALLS and "save" in (dotted(call.func) or ""):
            inner = home.target(call)
            name = (
                _path_parameter(home, inner, depth + 1)
                if inner is not None and inner is not function
                else None
            )
            path = home.argument_for(inner, call, name) if inner is not None and name is not None else None
        if isinstance(path, ast.Name) and path.id in names:
            return path.id
    return None


def writes_in(module: SourceModule, node: ast.AST) -> Iterator[Written]:
    """Yield what is written directly in a function or a statement of a file."""
    scope = module.scope(node) if isinstance(node, ast.stmt) else node
    for call in module.inside(node, ast.Call):
        if module.scope(call) is scope and (found := written_by(module, call)) is not None:
            yield found
