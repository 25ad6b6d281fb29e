# SPDX-License-Identifier: Apache-2.0
"""What operators give for constants, as far as both sides are known."""

import ast
import operator
from typing import Any

from truestep.doctor.source.frames import UNKNOWN, UnknownValue

_GREATEST = 2**63  # larger ones are no counts, and squares of squares take for ever
_COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def compare(op: ast.cmpop, left: Any, right: Any) -> Any:
    """Return whether a comparison holds: True, False, or UNKNOWN."""
    if isinstance(left, UnknownValue) or isinstance(right, UnknownValue):
        return UNKNOWN
    try:
        return _COMPARE[type(op)](left, right)
    except (KeyError, TypeError):
        return UNKNOWN


def compute(op: ast.operator, left: Any, right: Any) -> Any:
    """Return what is computed from two numbers, or UNKNOWN."""
    if not all(isinstance(each, int | float) and abs(each) <= _GREATEST for each in (left, right)):
        return UNKNOWN
    try:
        return _ARITHMETIC[type(op)](left, right)
    except (KeyError, ZeroDivisionError):
        return UNKNOWN
