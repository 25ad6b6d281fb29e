# SPDX-License-Identifier: Apache-2.0
"""Whether a value of an iteration is computed anew behind a place in it: from nothing with a graph from before."""

import ast
from collections.abc import Iterator

from truestep.doctor.source.events import TraceEvent
from truestep.doctor.source.losses import loses_graph
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part, walk

_FILLS = ("append", "extend", "insert", "add", "update", "setdefault", "put")
MAX_PARTS = 200  # expressions and functions that one value is followed through


def is_graph_rebuilt_after(module: SourceModule, event: TraceEvent, later: TraceEvent) -> bool:
    """Tell whether what goes backward later in a loop has no part in a graph that was there at an event before it."""
    if later.receiver is None or not event.loop_path():
        return False
    home = module.home(event.node)
    start = _later_event_in_scope(home, event, later)
    if start is None or _line_and_column(start) < _line_and_column(event.node):
        return False
    return _ValuesKeptBeforeEvent(home, event).holds(start if start is not later.node else later.receiver)


def _later_event_in_scope(module: SourceModule, event: TraceEvent, later: TraceEvent) -> ast.expr | None:
    """Return the later event, or the call in the function of the first in which it happens."""
    calls = [frame.node for frame in later.path[len(event.loop_path()) :] if frame.kind == "call"]
    scope = module.scope(event.node)
    near = [each for each in [*calls, later.node] if isinstance(each, ast.expr)]
    return next((each for each in near if module.home(each).scope(each) is scope), None)


def _line_and_column(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


class _ValuesKeptBeforeEvent:
    """What was there before an event in its loop, and what of that a value behind it reads."""

    def __init__(self, module: SourceModule, event: TraceEvent) -> None:
        self.module, self.event = module, event
        self.scope = module.scope(event.node)
        self.loop = event.loop_path()[-1].node
        self.filled: set[str] = set()
        self.before = set(self._names_kept_before())
        self.seen: set[ast.AST] = set()

    def _names_kept_before(self) -> Iterator[str]:
        """Yield the last parts of the names that may hold a graph by then."""
        for function in self._nodes_run_before():
            for node in self.module.home(function).inside(function, ast.Assign):
                if function is not self.loop or self._is_before(node.value):
                    yield from (
                        name
                        for target in node.targets
                        for name in _stored_names(target)
                        if _can_carry_graph(node.value)
                        and (function is self.loop or isinstance(target, (ast.Attribute, ast.Subscript)))
                    )
            for call in self.module.home(function).inside(function, ast.Call):
                if isinstance(call.func, ast.Attribute) and call.func.attr in _FILLS:
                    self.filled.add(last_part(call.func.value))

    def _nodes_run_before(self) -> Iterator[ast.AST]:
        """Yield the loop, and the functions that it calls before the event: what these keep outlives them."""
        yield self.loop
        waiting = [each for each in self.module.inside(self.loop, ast.Call) if self._is_before(each)]
        found: set[ast.AST] = set()
        while waiting and len(found) < MAX_PARTS:
            function = self.module.functions.applied(waiting.pop())
            if function is not None and function not in found:
                found.add(function)
                yield function
                waiting += self.module.home(function).inside(function, ast.Call)

    def _is_before(self, node: ast.expr) -> bool:
        return _line_and_column(node) < _line_and_column(self.event.node)

    def holds(self, value: ast.expr) -> bool:
        """Tell whether a value reads nothing that was kept before, in whatever functions compute it."""
        waiting: list[ast.AST] = [value]
        while waiting:
            node = waiting.pop()
            if node in self.seen:
                continue
            self.seen.add(node)
            if len(self.seen) > MAX_PARTS:
                return False
            for part in walk(node):
                if isinstance(part, (ast.Name, ast.Attribute)) and self._has_earlier_value(part, waiting):
                    return False
                function = self.module.functions.applied(part) if isinstance(part, ast.Call) else None
                waiting += [function] if function is not None else []
        return True

    def _has_earlier_value(self, part: ast.Name | ast.Attribute, waiting: list[ast.AST]) -> bool:
        """Tell whether a name has a value of before; what it was given behind the event is looked at as well."""
        if not isinstance(part.ctx, ast.Load):
            return False
        if last_part(part) in self.filled:
            return True
        home = self.module.home(part)
        if last_part(part) not in self.before:
            if (
                isinstance(part, ast.Name) and home.scope(part) is self.scope
            ):  # what it was given may read what was there
                waiting += [each for each in home.definitions(part) if each is not None]
            return False
        if isinstance(part, ast.Name) and home.scope(part) is not self.scope:
            return home.resolver.names.variable(part)[0] is self.scope
        given = home.definitions(part)
        if not given or any(each is None or home.scope(each) is not self.scope for each in given):
            return bool(given) or isinstance(part, ast.Attribute)
        waiting += [each for each in given if each is not None]
        return any(each is not None and self._is_before(each) and _can_carry_graph(each) for each in given)


def _can_carry_graph(value: ast.expr) -> bool:
    """Tell whether a value may have a graph: something that is called gave it, and it was not cut off."""
    return not loses_graph(value) and any(isinstance(each, ast.Call) for each in walk(value))


def _stored_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for each in target.elts:
            yield from _stored_names(each)
    else:
        yield last_part(target.value if isinstance(target, (ast.Subscript, ast.Starred)) else target)
