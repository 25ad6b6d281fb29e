# SPDX-License-Identifier: Apache-2.0
"""Whole numbers behind names, attributes, and the defaults of command line options."""

import ast

from truestep.doctor.source.memoized_walk import WITHOUT_END, walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import common_answer
from truestep.doctor.source.value_origins import constant

_NAMED = ast.Name | ast.Attribute | ast.IfExp


def whole_numbers(module: SourceModule, node: ast.expr | None) -> set[int | None]:
    """Return every whole number that an expression may stand for; None where one can't be seen."""

    def values_behind(part: ast.expr | None) -> list[ast.expr | None]:
        return module.definitions(part) or [None] if isinstance(part, _NAMED) else []

    found = [
        each for each in walk_each_once([node], values_behind, WITHOUT_END) if not isinstance(each, _NAMED)
    ]
    values = [constant(each) for each in found]
    return {each if isinstance(each, int) and not isinstance(each, bool) else None for each in values}


def whole_number(module: SourceModule, node: ast.expr | None) -> int | None:
    """Return the one whole number that an expression stands for, if it is the same on every way to it."""
    return common_answer(whole_numbers(module, node))
