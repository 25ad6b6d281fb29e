# SPDX-License-Identifier: Apache-2.0
"""A name that has no value yet, or never."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.undefined import may_lack_a_value, names_without_value, scopes_of_trainings

_MAKES_NAMES = {"exec", "globals", "locals", "vars", "__builtins__", "execfile"}
_HOLE = re.compile(r"_+$|TODO|FIXME|YOUR_|FILL", re.IGNORECASE)  # to be filled in, as in homework
_FILES = (".py", ".ipynb")
_USUAL = ("x", "y")  # of the examples in manuals
NUM_OF_FRAGMENT = 3  # a file that reads so many names at its top which it never binds goes on from another


class VariableWithoutValue(SourceCheck):
    """A function assigns a name that also stands outside of it, and reads it before; or nothing gives a name a value.

    Why: an assignment makes the name the function's own, so Python stops with an UnboundLocalError (or a NameError)
    when it comes there. pyflakes tells which names these are; where a training comes by it is a bug, elsewhere a risk.
    A name that nothing binds is told of whole files alone, and of none with a star import, `exec` or `globals`.

    Bad:
        num_steps = 0

        def train(loader):
            for x, y in loader:
                F.cross_entropy(net(x), y).backward()
                num_steps += 1  # here

    Good:
        num_steps = 0

        def train(loader):
            global num_steps
            for x, y in loader:
                F.cross_entropy(net(x), y).backward()
                num_steps += 1

    Fix: `global NAME` (of an outer function: `nonlocal NAME`), a parameter, or the name that is meant.

    Evidence: 186 repositories: 91 true, 12 debatable, 0 false.
    """

    code = "VALUE041"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report what pyflakes finds; a name that nothing binds in whole files alone, once for each."""
        if "torch" not in module.text or not may_lack_a_value(module):
            return
        local, unbound = _names_in(module)
        for name in local:
            text = f"{name.id!r} is this function's own, and has no value here: no global says otherwise."
            yield At(name, text, _severity(module, name))
        if not _is_whole(module, unbound):
            return
        for name in unbound:
            yield At(name, f"Nothing in this file gives {name.id!r} a value.", _severity(module, name))


def _names_in(module: SourceModule) -> tuple[list[ast.Name], list[ast.Name]]:
    """Return the names that functions read before they bind them, and the first read of each that nothing binds."""
    places = {(each.lineno, each.col_offset, each.id): each for each in module.all(ast.Name)}
    local: list[ast.Name] = []
    unbound: dict[str, ast.Name] = {}
    for found in names_without_value(module.text, module.path):
        name = places.get((found.line, found.column, found.name))
        if name is None or _is_passed_over(module, name):
            continue
        if found.is_local:
            if not _comes_round(module, name):
                local.append(name)
        elif not _HOLE.match(found.name) and not _is_of_other_cell(module, found.name):
            unbound.setdefault(found.name, name)
    return local, list(unbound.values())


def _is_whole(module: SourceModule, unbound: list[ast.Name]) -> bool:
    """Tell a file that runs by itself: no part of a text or of another file, and none whose names are made by texts."""
    if not module.path.endswith(_FILES) or not Path(module.path).is_file():
        return False
    if {each.id for each in module.all(ast.Name)} & _MAKES_NAMES:
        return False
    at_top = [each for each in unbound if not isinstance(module.scope(each), Function)]
    is_part = any(each.id in _USUAL or module.kind(each) is not None for each in at_top)
    return len(at_top) < NUM_OF_FRAGMENT and not is_part


def _is_of_other_cell(module: SourceModule, name: str) -> bool:
    """Tell a name that a notebook binds in a later cell: cells are run in any order."""
    return module.path.endswith(".ipynb") and name in module.index.names[module.tree].bindings


def _comes_round(module: SourceModule, read: ast.Name) -> bool:
    """Tell whether a loop around a read, which a condition may leave out at first, binds the name further down."""
    above = list(module.ancestors(read))
    loops = [each for each in above if isinstance(each, ast.For | ast.While)]
    bound = [each.node for each in module.names.bindings(read)]
    loops = [each for each in loops if any(each in module.ancestors(node) for node in bound)]
    conditions = ast.If | ast.IfExp | ast.BoolOp | ast.Try
    return bool(loops) and any(
        isinstance(each, conditions) and loops[-1] in module.ancestors(each) for each in above
    )


def _severity(module: SourceModule, name: ast.Name) -> Severity:
    """A training that comes here stops; of what none comes by, nobody knows whether it is ever run."""
    return BUG if module.scope(name) in module.program.answer(scopes_of_trainings) else RISK


def _is_passed_over(module: SourceModule, name: ast.Name) -> bool:
    """Tell what may never be computed: an annotation, a part of `if False` or TYPE_CHECKING, what is guarded."""
    below: ast.AST = name
    for each in module.ancestors(name):
        if isinstance(each, ast.arg) or (isinstance(each, ast.AnnAssign) and below is each.annotation):
            return True
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and below is each.returns:
            return True
        if isinstance(each, ast.If) and (
            isinstance(each.test, ast.Constant) or f"'{name.id}'" in ast.unparse(each.test)
        ):
            return True
        if isinstance(each, ast.Try) and each.handlers:
            return True
        below = each
    return False
