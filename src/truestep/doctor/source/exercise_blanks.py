# SPDX-License-Identifier: Apache-2.0
"""Whether a file is a form that somebody else fills in; apart from the check that asks, which fills its file."""

import ast
import re

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk

_TO_DO = re.compile(r"#.*\b(TODO|FIXME|fill in|your (own )?code)\b", re.IGNORECASE)
NUM_OF_FORM = 2  # places marked as open with nothing in them: one alone may have been forgotten


def has_blanks(module: SourceModule, unbound: list[ast.Name]) -> bool:
    """Tell a file with blanks: a name alone where it has to be made, `# loss =`, `for step, () in`, or several open ends."""
    for target in [each.target for each in module.all(ast.For)]:
        if any(not each.elts for each in [target, *walk(target)] if isinstance(each, ast.Tuple)):
            return True
    used = {each.value.id for each in module.all(ast.Attribute) if isinstance(each.value, ast.Name)}
    names = {each.id for each in unbound} & used
    alone = [each.value for each in module.all(ast.Expr) if each not in module.shown]
    if any(isinstance(each, ast.Name) and each.id in names for each in alone):
        return True
    if any(
        re.search(rf"^\s*#\s*{each.id}\s*=\s*(\.\.\.|[_?]+|None)?\s*$", module.text, re.MULTILINE)
        for each in unbound
    ):
        return True
    return (
        len([each for each in _placeholder_nodes(module) if _is_marked_as_open(module, each)]) >= NUM_OF_FORM
    )


def _placeholder_nodes(module: SourceModule) -> list[ast.AST]:
    """Return what holds a place for something else: `pass`, `...`, `x = None`, `[]`."""
    found: list[ast.AST] = [*module.all(ast.Pass)]
    found += [each for each in module.all(ast.Expr) if _is_empty_value(each.value)]
    found += [each for each in module.all(ast.Assign) if _is_empty_value(each.value)]
    return found


def _is_empty_value(value: ast.expr) -> bool:
    if isinstance(value, (ast.List, ast.Tuple)):
        return not value.elts
    return isinstance(value, ast.Constant) and value.value in (None, ...)


def _is_marked_as_open(module: SourceModule, empty: ast.AST) -> bool:
    """Tell whether a comment over it, beside it or in it says that it is open."""
    first, last = empty.lineno, empty.end_lineno or empty.lineno  # type: ignore[attr-defined]
    over = module.lines[first - 2] if first > 1 else ""
    lines = [over] if over.strip().startswith("#") else []
    return any(_TO_DO.search(each) for each in [*lines, *module.lines[first - 1 : last]])
