# SPDX-License-Identifier: Apache-2.0
"""Edits of a file, made from the nodes that they are about."""

import ast
from collections.abc import Sequence

from truestep.doctor.replacement import SourceEdit
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import given_to

Edits = Sequence[SourceEdit]


class SourceRewriteError(Exception):
    """The code is laid out in a way that no edit is made for: the finding has none."""


def text_of(module: SourceModule, node: ast.AST) -> str:
    """Return a node as it is written."""
    _in_this_file(module, node)
    found = ast.get_source_segment(module.text, node)
    if found is None:
        raise SourceRewriteError
    return found


def _in_this_file(module: SourceModule, node: ast.AST) -> None:
    if module.home(node) is not module:
        raise SourceRewriteError


def column_of(module: SourceModule, line: int, offset: int) -> int:
    """Turn the syntax tree's offset in bytes into a column of characters, from 1."""
    return len(module.lines[line - 1].encode()[:offset].decode()) + 1


def replaced(module: SourceModule, node: ast.AST, text: str) -> SourceEdit:
    """Put a text in the place of a node."""
    _in_this_file(module, node)
    if getattr(node, "is_part", False):  # of a statement that does more
        raise SourceRewriteError
    line, end = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    start = column_of(module, line, node.col_offset)  # type: ignore[attr-defined]
    return SourceEdit(line, start, end, column_of(module, end, node.end_col_offset), text)  # type: ignore[attr-defined]


def inserted_behind(module: SourceModule, node: ast.AST, text: str) -> SourceEdit:
    """Put a text straight behind a node."""
    _in_this_file(module, node)
    end = node.end_lineno  # type: ignore[attr-defined]
    column = column_of(module, end, node.end_col_offset)  # type: ignore[attr-defined]
    return SourceEdit(end, column, end, column, text)


def before(module: SourceModule, node: ast.AST, *lines: str) -> SourceEdit:
    """Put lines, indented alike, before the statement that a node is part of."""
    statement = _alone(module, node)
    text = "".join(f"{_indent(module, statement)}{line}\n" for line in lines)
    return SourceEdit(statement.lineno, 1, statement.lineno, 1, text)


def after(module: SourceModule, node: ast.AST, *lines: str) -> SourceEdit:
    """Put lines, indented alike, after the statement that a node is part of."""
    statement = _alone(module, node)
    end = statement.end_lineno or statement.lineno
    text = "".join(f"\n{_indent(module, statement)}{line}" for line in lines)
    column = len(module.lines[end - 1]) + 1
    return SourceEdit(end, column, end, column, text)


def removed(module: SourceModule, node: ast.AST) -> SourceEdit:
    """Take away the statement that a node is part of; `pass` stays where it was the only one."""
    statement = _alone(module, node)
    end = statement.end_lineno or statement.lineno
    if any(getattr(module.parents[statement], part, None) == [statement] for part in ("body", "orelse")):
        return replaced(module, statement, "pass")
    if end == len(module.lines):
        return SourceEdit(statement.lineno, 1, end, len(module.lines[end - 1]) + 1, "")
    return SourceEdit(statement.lineno, 1, end + 1, 1, "")


def moved_after(module: SourceModule, node: ast.AST, anchor: ast.AST) -> Edits:
    """Move a statement of one line behind another statement, or out of the end of one."""
    inner, outer = module.statement(node), module.statement(anchor)
    if outer is not inner and outer.end_lineno == inner.end_lineno:
        text = f"{_indent(module, outer)}{_one_line(module, _alone(module, node))}"
        return [SourceEdit(inner.lineno, 1, inner.lineno, len(module.lines[inner.lineno - 1]) + 1, text)]
    return [removed(module, node), after(module, anchor, _one_line(module, node))]


def moved_before(module: SourceModule, node: ast.AST, anchor: ast.AST) -> Edits:
    """Move a statement of one line before another statement."""
    return [removed(module, node), before(module, anchor, _one_line(module, node))]


def with_keyword(module: SourceModule, call: ast.Call, name: str, value: str) -> SourceEdit:
    """Set a keyword argument of a call."""
    for word in call.keywords:
        if word.arg == name:
            return replaced(module, word.value, value)
    given = given_to(call)
    if not given:
        return _into_empty(module, call, f"{name}={value}")
    last = max(given, key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0))
    return inserted_behind(module, last, f", {name}={value}")


def without_keyword(module: SourceModule, call: ast.Call, name: str) -> SourceEdit:
    """Take away a keyword argument of a call, with its comma."""
    parts: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    for index, word in enumerate(parts):
        if isinstance(word, ast.keyword) and word.arg == name:
            here = replaced(module, word, "")
            if index:
                end = replaced(module, parts[index - 1], "")
                return SourceEdit(end.end_line, end.end_column, here.end_line, here.end_column, "")
            if len(parts) > 1:
                follows = replaced(module, parts[1], "")
                return SourceEdit(here.line, here.column, follows.line, follows.column, "")
            return here
    raise SourceRewriteError


def renamed(module: SourceModule, attribute: ast.expr, name: str) -> SourceEdit:
    """Give `x.old` the name `x.name`."""
    if not isinstance(attribute, ast.Attribute):
        raise SourceRewriteError
    return replaced(module, attribute, f"{text_of(module, attribute.value)}.{name}")


def with_first(module: SourceModule, call: ast.Call, text: str) -> SourceEdit:
    """Put a first argument into a call."""
    if call.args or call.keywords:
        first = replaced(module, [*call.args, *call.keywords][0], "")
        return SourceEdit(first.line, first.column, first.line, first.column, f"{text}, ")
    return _into_empty(module, call, text)


def _into_empty(module: SourceModule, call: ast.Call, text: str) -> SourceEdit:
    """Put a text between the brackets of a call that is given nothing."""
    end = replaced(module, call, "")
    return SourceEdit(end.end_line, end.end_column - 1, end.end_line, end.end_column - 1, text)


def wrapped(module: SourceModule, node: ast.AST, function: str) -> Edits:
    """Put a call of a function around an expression."""
    start = replaced(module, node, "")
    head = SourceEdit(start.line, start.column, start.line, start.column, f"{function}(")
    return [head, inserted_behind(module, node, ")")]


def name_of(module: SourceModule, qualified: str) -> str:
    """Return what this file calls something of torch or numpy, e.g. `nn` or `torch.nn`."""
    for node in [*module.all(ast.Name), *module.all(ast.Attribute)]:
        if module.qualify(node) == qualified:
            return ast.unparse(node)
    head, _, last = qualified.rpartition(".")
    if not head:
        raise SourceRewriteError
    return f"{name_of(module, head)}.{last}"


def event_at(module: SourceModule, node: ast.AST, kind: str | None = None) -> tuple[Trace, TraceEvent]:
    """Return the event of the protocol that a node is."""
    for trace in module.program.traces_through(node):
        for event in trace.events:
            if event.node is node and kind in (None, event.kind):
                return trace, event
    raise SourceRewriteError


def written(module: SourceModule, node: ast.AST, receiver: ast.expr | None) -> str:
    """Return what an event was called on, if that can be written where the node stands."""
    if receiver is None or module.scope(receiver) is not module.scope(node):
        raise SourceRewriteError
    return text_of(module, receiver)


def beside(module: SourceModule, node: ast.AST, other: ast.AST) -> ast.AST:
    """Return the statement of the node's own block that the other node stands in."""
    block = module.parents[module.statement(node)]
    for each in [other, *module.ancestors(other)]:
        if module.parents.get(each) is block and isinstance(each, ast.stmt):
            return each
    raise SourceRewriteError


def next_event(module: SourceModule, node: ast.AST, kind: str) -> TraceEvent:
    """Return the next event of a kind in the same function."""
    trace, event = event_at(module, node)
    return _first_of(module, trace.events[trace.events.index(event) + 1 :], event, kind)


def last_event(module: SourceModule, node: ast.AST, kind: str) -> TraceEvent:
    """Return the nearest earlier event of a kind in the same function."""
    trace, event = event_at(module, node)
    return _first_of(module, trace.events[: trace.events.index(event)][::-1], event, kind)


def _first_of(
    module: SourceModule, events: Sequence[TraceEvent], beside: TraceEvent, kind: str
) -> TraceEvent:
    for each in events:
        if each.kind == kind and module.scope(each.node) is module.scope(beside.node):
            return each
    raise SourceRewriteError


def _one_line(module: SourceModule, node: ast.AST) -> str:
    text = text_of(module, module.statement(node))
    if "\n" in text:
        raise SourceRewriteError
    return text


def _indent(module: SourceModule, statement: ast.stmt) -> str:
    line = module.lines[statement.lineno - 1]
    return line[: len(line) - len(line.lstrip())]


def _alone(module: SourceModule, node: ast.AST) -> ast.stmt:
    """Return the statement of a node, which must have its lines for itself."""
    _in_this_file(module, node)
    statement = module.statement(node)
    end = statement.end_lineno or statement.lineno
    head = module.lines[statement.lineno - 1].encode()[: statement.col_offset].decode()
    tail = module.lines[end - 1].encode()[statement.end_col_offset or 0 :].decode().strip()
    if head.strip() or (tail and not tail.startswith("#")):
        raise SourceRewriteError
    return statement
