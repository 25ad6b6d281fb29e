# SPDX-License-Identifier: Apache-2.0
"""Whole numbers behind names, attributes, and the defaults of command line options."""

import ast

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import constant


def whole_numbers(module: SourceModule, node: ast.expr | None) -> set[int | None]:
    """Return every whole number that an expression may stand for; None where one can't be seen."""
    found: set[int | None] = set()
    seen: set[ast.expr] = set()
    waiting = [node]
    while waiting:
        current = waiting.pop()
        value = constant(current)
        if isinstance(value, int) and not isinstance(value, bool):
            found.add(value)
        elif isinstance(current, (ast.Name, ast.Attribute, ast.IfExp)) and current not in seen:
            seen.add(current)
            waiting += module.definitions(current) or [None]
        elif current not in seen:
            found.add(None)
    return found


def whole_number(module: SourceModule, node: ast.expr | None) -> int | None:
    """Return the one whole number that an expression stands for, if it is the same on every way to it."""
    found = whole_numbers(module, node)
    return found.pop() if len(found) == 1 else None
