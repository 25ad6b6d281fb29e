# SPDX-License-Identifier: Apache-2.0
"""One call of a function, and an expression in it; the values that can't be seen."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truestep.doctor.source.names import Function


class UnknownValue:
    """A value that can't be seen; it is equal to nothing."""

    def __bool__(self) -> bool:
        raise AssertionError("an unknown value is neither true nor false")


class OtherValue:
    """A value that a world gives to a variable that is none of those it is compared with."""


UNKNOWN, OTHER = UnknownValue(), OtherValue()
World = Mapping[str, Any]  # the value of each variable that was chosen


@dataclass(eq=False, slots=True)  # not frozen: that takes three times as long
class CallFrame:
    """One call of a function: what its parameters stand for; without a function, the top of a file."""

    function: Function | None = None
    arguments: "Mapping[str, LocatedExpression]" = field(default_factory=dict)
    caller: "CallFrame | None" = None
    number: int = 0  # tells calls of one function apart

    def of(self, function: Function | None) -> "CallFrame | None":
        """Return the innermost call around in which a function's names live."""
        current: CallFrame | None = self
        while current is not None and current.function is not function:
            current = current.caller
        return current


@dataclass(eq=False, slots=True)
class LocatedExpression:
    """An expression and the call in which it is evaluated."""

    node: ast.expr
    context: CallFrame


TOP = CallFrame()  # the body of a file
