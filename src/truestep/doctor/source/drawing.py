# SPDX-License-Identifier: Apache-2.0
"""Whether anything in sight uses what an expression makes: through names, attributes, results and those who unpack them."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted
from truestep.doctor.source.once import each_once

_MEASURES = ("len", "print", "str", "repr", "type")  # what asks about a loader and draws nothing from it


def is_ever_used(module: SourceModule, made: ast.expr) -> bool:
    """Tell whether a value is used for more than its length; also where that can't be seen."""
    used = False

    def further(node: ast.expr) -> list[ast.expr]:
        nonlocal used
        reads = _reads_of(module, node)
        used = used or reads is None
        return reads or []

    for _ in each_once([made], further):
        if used:
            return True
    return used


def _reads_of(module: SourceModule, node: ast.expr) -> list[ast.expr] | None:
    """Return where a value that is kept, given back or only measured is read again; None where it is used."""
    above = module.parents[node]
    if isinstance(above, ast.Call) and dotted(above.func) in _MEASURES and node in above.args:
        return []
    if isinstance(above, ast.Assign) and above.value is node:
        found = [_reads_of_target(module, each) for each in above.targets]
        return None if None in found else [read for each in found for read in each or ()]
    if isinstance(above, ast.Return):
        return _results(module, above, None)
    if isinstance(above, ast.Tuple) and isinstance(outer := module.parents[above], ast.Return):
        return _results(module, outer, above.elts.index(node))
    return None


def _reads_of_target(module: SourceModule, target: ast.expr) -> list[ast.expr] | None:
    """Return the reads of a name, or of an attribute of `self` in the whole program; of other places nothing is known."""
    if isinstance(target, ast.Attribute) and dotted(target.value) == "self":
        return [*module.program.attributes_read.get(target.attr, ())]
    if not isinstance(target, ast.Name):
        return None
    if isinstance(module.scope(target), ast.Module):
        return [read for file in module.program.linked for read in file.read_under(target.id)]
    return [each for each in module.reads(target.id) if _sees(module, each, target)]


def _sees(module: SourceModule, read: ast.expr, target: ast.Name) -> bool:
    """Tell whether a name is read in the function that binds it, or in one inside of it."""
    scope = module.scope(target)
    return module.scope(read) is scope or scope in module.ancestors(read)


def _results(module: SourceModule, given: ast.Return, index: int | None) -> list[ast.expr] | None:
    """Return where the callers read what a function gives back, or one part of it."""
    function = module.scope(given)
    calls = module.functions.callers(function) if isinstance(function, Function) else []
    if not calls:
        return None
    found: list[ast.expr] = []
    for call in calls:
        home = module.home(call)
        reads = _kept_by(home, call, index)
        if reads is None:
            return None
        found += reads
    return found


def _kept_by(home: SourceModule, call: ast.Call, index: int | None) -> list[ast.expr] | None:
    above = home.parents[call]
    if isinstance(above, ast.Expr):
        return []
    if index is None:
        return [call]
    target = above.targets[0] if isinstance(above, ast.Assign) and above.value is call else None
    if not isinstance(target, ast.Tuple) or index >= len(target.elts):
        return None
    if any(isinstance(each, ast.Starred) for each in target.elts):
        return None
    return _reads_of_target(home, target.elts[index])
