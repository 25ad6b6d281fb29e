# SPDX-License-Identifier: Apache-2.0
"""The choices of values for the tests that nothing decides: each choice is a world; no counter is chosen."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from truestep.doctor.library.loops import CHANGES
from truestep.doctor.source.accumulation_windows import is_update_test
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.frames import OTHER, CallFrame, LocatedExpression, UnknownValue
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.resolving import Resolver
from truestep.doctor.source.value_contexts import CallFrames

MAX_WORLDS = 8


@dataclass
class UndecidedTests:
    """The tests of one entry that nothing decided, by the variables they ask."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    num_uses: dict[str, tuple[int, int]] = field(default_factory=dict)  # where an update is guarded, and all

    def add(self, name: str, values: Iterable[Any], guards_update: bool) -> None:
        """Note a test of a variable, and the values that tell its ways apart."""
        known = self.values.setdefault(name, [])
        known += [
            each for each in values if not any(each is old or _are_same_constant(each, old) for old in known)
        ]
        of_updates, uses = self.num_uses.get(name, (0, 0))
        self.num_uses[name] = of_updates + guards_update, uses + 1

    def worlds(self) -> list[dict[str, Any]]:
        """Return the choices of values, while there is room: first what decides on updates, then what is asked most."""
        chosen: dict[str, list[Any]] = {}
        room = MAX_WORLDS
        for name in sorted(self.values, key=self.num_uses.__getitem__, reverse=True):
            if len(self.values[name]) <= room and len(self.values[name]) > 1:
                chosen[name] = self.values[name]
                room //= len(self.values[name])
        return [dict(zip(chosen, values, strict=True)) for values in product(*chosen.values())]


def _are_same_constant(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(first == second)


def have_same_events(first: Trace, second: Trace) -> bool:
    """Tell whether the same happens on the same ways in two traces."""
    if len(first.events) != len(second.events):
        return False
    return all(
        one is other or _is_same_event(one, other)
        for one, other in zip(first.events, second.events, strict=True)
    )


def _is_same_event(one: TraceEvent, other: TraceEvent) -> bool:
    same = one.kind == other.kind and one.node is other.node and one.subject == other.subject
    return same and one.path == other.path


def values_around(op: ast.cmpop, values: list[Any]) -> list[Any]:
    """Return values of a variable on all sides of what it is compared with."""
    numbers = [each for each in values if isinstance(each, (int, float)) and not isinstance(each, bool)]
    if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) and len(numbers) == len(values) == 1:
        return [numbers[0] - 1, numbers[0], numbers[0] + 1]
    return [*values, OTHER]


class VaryingNames:
    """Knows what has another value in each batch: counters, numbers that a library gives, and what it tells of its progress."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.numbered: set[ast.AST] = set()  # parameters that a library gives the number of the batch
        self._asked: dict[ast.expr, bool] = {}

    def is_asked_by(self, test: ast.expr) -> bool:
        """Tell a test of a counter: what stands behind `continue` is done in the other batches."""
        if test not in self._asked:
            found = any(isinstance(each, ast.Mod) or self.counts(each) for each in walk(test))
            self._asked[test] = found
        return self._asked[test]

    def counts(self, node: ast.AST) -> bool:
        """Tell whether a name has another value in each batch: no world can choose one for it."""
        if isinstance(node, ast.Attribute):
            return self._is_library_progress(node) or self._is_added_to(node)
        if not isinstance(node, ast.Name):
            return False
        bindings = self.resolver.names.bindings(node)
        return any(each.how in ("augmented", "for") or each.node in self.numbered for each in bindings)

    def _is_library_progress(self, node: ast.Attribute) -> bool:
        return node.attr in CHANGES or ".".join((dotted_name(node) or "").split(".")[-2:]) in CHANGES

    def _is_added_to(self, node: ast.Attribute) -> bool:
        owner = self.resolver.classes.of(node.value) if node.attr in self.resolver.index.held else None
        bindings = self.resolver.attribute_bindings(owner, node.attr) if owner is not None else []
        return any(each.how == "augmented" for each in bindings)


def variables_asked_by(
    contexts: CallFrames, varying: VaryingNames, test: LocatedExpression
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the variables of a test with the values that tell its ways apart; counters are not chosen."""
    made = contexts.origin(test)
    if isinstance(made.node, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp)):
        test = made
    node, context = test.node, test.context
    match node:
        case ast.Call() | ast.Name() | ast.Attribute() if is_update_test(node):
            pass  # it has another answer in some batches
        case ast.UnaryOp(op=ast.Not()):
            yield from variables_asked_by(contexts, varying, LocatedExpression(node.operand, context))
        case ast.BoolOp():
            for each in node.values:
                yield from variables_asked_by(contexts, varying, LocatedExpression(each, context))
        case ast.Compare():
            yield from _variables_asked_by_comparison(contexts, varying, node, context)
        case ast.BinOp(op=ast.Mod()):
            pass
        case _:
            if isinstance(contexts.value(test), UnknownValue) and not varying.counts(node):
                yield contexts.variable(test), [True, False]


def _variables_asked_by_comparison(
    contexts: CallFrames, varying: VaryingNames, node: ast.Compare, context: CallFrame
) -> Iterator[tuple[str, list[Any]]]:
    if any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod) for each in walk(node)):
        return
    variable = isinstance(node.left, (ast.Name, ast.Attribute, ast.Subscript))
    other = node.comparators[0]
    options = other.elts if isinstance(other, (ast.Tuple, ast.List, ast.Set)) else [other]
    values = [contexts.value(LocatedExpression(each, context)) for each in options]
    known = len(node.ops) == 1 and variable and not any(isinstance(each, UnknownValue) for each in values)
    if known and not varying.counts(node.left):
        yield (
            contexts.variable(LocatedExpression(node.left, context)),
            values_around(node.ops[0], values),
        )
    elif not any(varying.counts(each) for each in walk(node)):
        yield contexts.variable(LocatedExpression(node, context)), [True, False]
