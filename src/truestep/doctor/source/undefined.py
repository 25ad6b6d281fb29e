# SPDX-License-Identifier: Apache-2.0
"""Names without a value, as pyflakes tells them, and what of a program its trainings run."""

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from truestep.doctor.replacement import parse_source
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, Scope

# what notebooks, profilers, systems and earlier versions of Python give a value
_GIVEN = (
    "__annotations__", "_", "WindowsError", "display", "get_ipython", "profile", "basestring", "buffer", "cmp", "execfile",
    "file", "long", "raw_input", "reduce", "reload", "unichr", "unicode", "xrange",
)  # fmt: skip


@dataclass(frozen=True)
class UndefinedRead:
    """Where a name is read, and whether it is a function's own that it assigns too late."""

    name: str
    line: int
    column: int  # in bytes, as in the tree
    is_local: bool


def may_lack_a_value(module: SourceModule) -> bool:
    """Tell whether any name of a file is worth asking about: most files bind each, once, and need not be read twice."""
    linker, index = module.names, module.index
    known = {*dir(builtins), *_GIVEN}
    names = {(each.id, index.scope_of[each]) for each in module.all(ast.Name) if each.id not in known}
    for name, scope in names:
        owner, outer = linker.owner(name, scope), index.names[scope].outer
        is_own = owner is scope and outer is not None
        if owner is None or (is_own and outer is not None and linker.owner(name, outer.scope) is not None):
            return True
    return False


def names_without_value(text: str, path: str) -> Iterator[UndefinedRead]:
    """Yield the names that have no value where they are read; in a file with a star import only a function's own."""
    from pyflakes.checker import Checker  # at first use: nothing else of the doctor needs it
    from pyflakes.messages import UndefinedLocal, UndefinedName

    for each in Checker(parse_source(text, path), path, builtins=frozenset(_GIVEN)).messages:
        if isinstance(each, UndefinedLocal | UndefinedName):
            told = each.message_args
            name = told if isinstance(told, str) else told[0]
            yield UndefinedRead(name, each.lineno, each.col, isinstance(each, UndefinedLocal))


def scopes_of_trainings(files: list[SourceModule]) -> set[Scope]:
    """Return the functions, and the tops of files, that run from where a program that trains is entered."""
    resolver, index = files[0].resolver, files[0].index
    waiting: list[ast.AST] = [
        trace.root for file in files for trace in file.program.followed if trace.learning_loops()
    ]
    found: set[Scope] = set()
    while waiting:
        scope = waiting.pop()
        if scope in found or not isinstance(scope, ast.Module | Function):
            continue
        found.add(scope)
        waiting.append(index.tree_of(scope))
        for call in files[0].home(scope).directly_in(scope, ast.Call):
            owner = resolver.classes.of(call.func)
            run = (
                resolver.functions.target(call),
                resolver.functions.constructor(call),
                resolver.classes.method(owner, "forward") if owner is not None else None,
            )
            waiting += [each for each in run if each is not None]
    return found
