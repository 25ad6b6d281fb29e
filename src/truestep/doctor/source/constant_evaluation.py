# SPDX-License-Identifier: Apache-2.0
"""The constants that expressions give, and whether tests hold, in one world and in one iteration of a loop that is run."""

import ast
import operator
from abc import ABC, abstractmethod
from typing import Any

from truestep.doctor.source.frames import (
    UNKNOWN,
    CallFrame,
    LocatedExpression,
    OtherValue,
    UnknownValue,
    World,
)
from truestep.doctor.source.loop_state import LoopState

MAX_PARTS = 64  # of what one value is computed from
_RUN = "the loop that is run"  # what is asked of it is asked of no world

_VARIABLES = frozenset((ast.Name, ast.Attribute, ast.Subscript))
_MADE_ELSEWHERE = _VARIABLES | {ast.IfExp}
_GREATEST = 2**63  # larger ones are no counts, and squares of squares take for ever
_COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


class ExpressionValues(ABC):
    """Evaluates expressions as far as a world decides them, and remembers what that was asked."""

    def __init__(self) -> None:
        self.world: World = {}
        self.running: LoopState | None = None  # the loop that is being run
        # what was asked of the world, in order, since it was chosen: an answer found again asks the same again
        self.asked: list[str] = []
        self._looked_at = 0  # parts of the value that is asked for

    @abstractmethod
    def origin(self, value: LocatedExpression) -> LocatedExpression:
        """Return the expression that made a value, in its call; the value itself where that can't be seen."""

    @abstractmethod
    def slot(self, value: LocatedExpression) -> str:
        """Return the name of the variable itself, whatever it holds."""

    @abstractmethod
    def variable(self, value: LocatedExpression) -> str:
        """Return the name under which a world gives an expression its value."""

    def value_apart(self, value: LocatedExpression, running: LoopState) -> Any:
        """Return what an expression gives in another loop, whatever is being evaluated now."""
        kept = self.running, self._looked_at
        self.running, self._looked_at = running, 0
        try:
            return self.value(value)
        finally:
            self.running, self._looked_at = kept

    def test(self, value: LocatedExpression) -> Any:
        """Return whether a test holds: True, False, or UNKNOWN."""
        found = self.value(value)
        return found if isinstance(found, UnknownValue) else isinstance(found, OtherValue) or bool(found)

    def value(self, value: LocatedExpression) -> Any:
        """Return the constant that an expression gives, in this call and this world; of a very long one, UNKNOWN."""
        is_outermost = self._looked_at == 0
        self._looked_at += 1
        try:
            return self._evaluate_expression(value) if self._looked_at <= MAX_PARTS else UNKNOWN
        finally:
            if is_outermost:
                self._looked_at = 0

    def _evaluate_expression(self, value: LocatedExpression) -> Any:
        node, context = value.node, value.context
        if type(node) in _VARIABLES:  # most are, and a `match` asks for each kind in turn
            return self._value_of_variable(value)
        match node:
            case ast.Constant():
                return node.value
            case ast.UnaryOp(op=ast.Not()):
                inner = self.test(LocatedExpression(node.operand, context))
                return inner if isinstance(inner, UnknownValue) else not inner
            case ast.UnaryOp(op=ast.USub()):
                inner = self.value(LocatedExpression(node.operand, context))
                return -inner if isinstance(inner, (int, float)) else UNKNOWN
            case ast.BoolOp():
                return self._evaluate_bool_operation(node, context)
            case ast.Compare() if len(node.ops) == 1:
                return self._evaluate_comparison(node, context)
            case ast.BinOp():
                return self._evaluate_arithmetic(node, context)
            case ast.Call(func=ast.Name(id="bool" | "int"), args=[given]):
                return self.value(LocatedExpression(given, context))
            case ast.Call(func=ast.Name(id="len")) if (run := self._running_loop()) is not None:
                return run.num_batches
        return self._value_of_variable(value)

    def _running_loop(self) -> LoopState | None:
        """Return the loop that is run, noting that it was asked for."""
        self.asked.append(_RUN)
        return self.running

    def _value_chosen_by_world(self, name: str) -> Any:
        """Return the value that the world gives a variable, noting that it was asked for."""
        self.asked.append(name)
        return self.world.get(name, UNKNOWN)

    def _value_of_variable(self, value: LocatedExpression) -> Any:
        run = self._running_loop() if self.running is not None else None
        if run is not None and (known := run.known(self.slot(value), value.node)):
            return known[0]
        name = self.variable(value)
        self.asked.append(name)
        if name in self.world:
            return self.world[name]
        if type(value.node) in _MADE_ELSEWHERE:
            made = self.origin(value)
            if made.node is not value.node:
                return self.value(made)
        return UNKNOWN

    def _evaluate_bool_operation(self, node: ast.BoolOp, context: CallFrame) -> Any:
        values = [self.test(LocatedExpression(each, context)) for each in node.values]
        deciding = isinstance(node.op, ast.Or)
        if any(not isinstance(each, UnknownValue) and each is deciding for each in values):
            return deciding
        return UNKNOWN if any(isinstance(each, UnknownValue) for each in values) else not deciding

    def _evaluate_comparison(self, node: ast.Compare, context: CallFrame) -> Any:
        sides = LocatedExpression(node.left, context), LocatedExpression(node.comparators[0], context)
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            found = self._evaluate_membership(sides[0], node.comparators[0])
            return found if isinstance(found, UnknownValue) else found is isinstance(node.ops[0], ast.In)
        found = compare(node.ops[0], *(self.value(each) for each in sides))
        if not isinstance(found, UnknownValue):
            return found
        return self._value_chosen_by_world(self.variable(LocatedExpression(node, context)))

    def _evaluate_membership(self, value: LocatedExpression, options: ast.expr) -> Any:
        left = self.value(value)
        known = isinstance(options, (ast.Tuple, ast.List, ast.Set))
        if isinstance(left, UnknownValue) or not known:
            return UNKNOWN
        values = [self.value(LocatedExpression(each, value.context)) for each in options.elts]  # type: ignore[attr-defined]
        return UNKNOWN if any(isinstance(each, UnknownValue) for each in values) else left in values

    def _evaluate_arithmetic(self, node: ast.BinOp, context: CallFrame) -> Any:
        left, right = (self.value(LocatedExpression(each, context)) for each in (node.left, node.right))
        if isinstance(node.op, ast.Mod) and isinstance(right, UnknownValue):
            right = run.window if (run := self._running_loop()) is not None else right
        return compute(node.op, left, right)


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
    if not all(isinstance(each, (int, float)) and abs(each) <= _GREATEST for each in (left, right)):
        return UNKNOWN
    try:
        return _ARITHMETIC[type(op)](left, right)
    except (KeyError, ZeroDivisionError):
        return UNKNOWN
