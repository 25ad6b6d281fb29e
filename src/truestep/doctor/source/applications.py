# SPDX-License-Identifier: Apache-2.0
"""Where the program applies its own modules: `net(x)` runs the forward of net's class."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function


def applications(module: SourceModule, function: Function) -> list[ast.Call]:
    """Return the calls of objects whose forward a function is; none for any other function."""
    owner = module.resolver.index.parents.get(function)
    if getattr(function, "name", "") != "forward" or not isinstance(owner, ast.ClassDef):
        return []
    classes = [owner, *module.classes.heirs(owner)]
    applied = module.program.answer(_applied)
    return [call for each in classes for call in applied.get(each, [])]


def _applied(files: list[SourceModule]) -> dict[Class, list[ast.Call]]:
    """Return the calls of objects of the program's classes, by the class."""
    found: dict[Class, list[ast.Call]] = {}
    for module in files:
        for call in module.all(ast.Call):
            if isinstance(call.func, (ast.Name, ast.Attribute)) and module.qualify(call.func) is None:
                owner = module.classes.of(call.func)
                if owner is not None and module.classes.named(call.func) is None:
                    found.setdefault(owner, []).append(call)
    return found
