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


def node_text(module: SourceModule, node: ast.AST) -> str:
    """Return a node as it is written."""
    _demand_same_file(module, node)
    found = ast.get_source_segment(module.text, node)
    if found is None:
        raise SourceRewriteError
    return found


def _demand_same_file(module: SourceModule, node: ast.AST) -> None:
    if module.home(node) is not module:
        raise SourceRewriteError


def column_of(module: SourceModule, line: int, offset: int) -> int:
    """Turn the syntax tree's offset in bytes into a column of characters, from 1."""
    return len(module.lines[line - 1].encode()[:offset].decode()) + 1


def replace_node(module: SourceModule, node: ast.AST, text: str) -> SourceEdit:
    """Put a text in the place of a node."""
    _demand_same_file(module, node)
    if getattr(node, "is_part", False):  # of a statement that does more
        raise SourceRewriteError
    line, end = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    start = column_of(module, line, node.col_offset)  # type: ignore[attr-defined]
    return SourceEdit(line, start, end, column_of(module, end, node.end_col_offset), text)  # type: ignore[attr-defined]


def insert_behind(module: SourceModule, node: ast.AST, text: str) -> SourceEdit:
    """Put a text straight behind a node."""
    _demand_same_file(module, node)
    end = node.end_lineno  # type: ignore[attr-defined]
    column = column_of(module, end, node.end_col_offset)  # type: ignore[attr-defined]
    return SourceEdit(end, column, end, column, text)


def before(module: SourceModule, node: ast.AST, *lines: str) -> SourceEdit:
    """Put lines, indented alike, before the statement that a node is part of."""
    statement = _statement_alone_on_lines(module, node)
    text = "".join(f"{_indentation(module, statement)}{line}\n" for line in lines)
    return SourceEdit(statement.lineno, 1, statement.lineno, 1, text)


def after(module: SourceModule, node: ast.AST, *lines: str) -> SourceEdit:
    """Put lines, indented alike, after the statement that a node is part of."""
    statement = _statement_alone_on_lines(module, node)
    end = statement.end_lineno or statement.lineno
    text = "".join(f"\n{_indentation(module, statement)}{line}" for line in lines)
    column = len(module.lines[end - 1]) + 1
    return SourceEdit(end, column, end, column, text)


def remove_statement(module: SourceModule, node: ast.AST) -> SourceEdit:
    """Take away the statement that a node is part of; `pass` stays where it was the only one."""
    statement = _statement_alone_on_lines(module, node)
    end = statement.end_lineno or statement.lineno
    if any(getattr(module.parents[statement], part, None) == [statement] for part in ("body", "orelse")):
        return replace_node(module, statement, "pass")
    if end == len(module.lines):
        return SourceEdit(statement.lineno, 1, end, len(module.lines[end - 1]) + 1, "")
    return SourceEdit(statement.lineno, 1, end + 1, 1, "")


def move_after(module: SourceModule, node: ast.AST, anchor: ast.AST) -> Edits:
    """Move a statement of one line behind another statement, or out of the end of one."""
    inner, outer = module.statement(node), module.statement(anchor)
    if outer is not inner and outer.end_lineno == inner.end_lineno:
        text = (
            f"{_indentation(module, outer)}{_one_line_text(module, _statement_alone_on_lines(module, node))}"
        )
        return [SourceEdit(inner.lineno, 1, inner.lineno, len(module.lines[inner.lineno - 1]) + 1, text)]
    return [remove_statement(module, node), after(module, anchor, _one_line_text(module, node))]


def move_before(module: SourceModule, node: ast.AST, anchor: ast.AST) -> Edits:
    """Move a statement of one line before another statement."""
    return [remove_statement(module, node), before(module, anchor, _one_line_text(module, node))]


def set_keyword(module: SourceModule, call: ast.Call, name: str, value: str) -> SourceEdit:
    """Set a keyword argument of a call."""
    for word in call.keywords:
        if word.arg == name:
            return replace_node(module, word.value, value)
    given = given_to(call)
    if not given:
        return _insert_into_empty_call(module, call, f"{name}={value}")
    last = max(given, key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0))
    return insert_behind(module, last, f", {name}={value}")


def remove_keyword(module: SourceModule, call: ast.Call, name: str) -> SourceEdit:
    """Take away a keyword argument of a call, with its comma."""
    parts: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    for index, word in enumerate(parts):
        if isinstance(word, ast.keyword) and word.arg == name:
            here = replace_node(module, word, "")
            if index:
                end = replace_node(module, parts[index - 1], "")
                return SourceEdit(end.end_line, end.end_column, here.end_line, here.end_column, "")
            if len(parts) > 1:
                follows = replace_node(module, parts[1], "")
                return SourceEdit(here.line, here.column, follows.line, follows.column, "")
            return here
    raise SourceRewriteError


def rename_attribute(module: SourceModule, attribute: ast.expr, name: str) -> SourceEdit:
    """Give `x.old` the name `x.name`."""
    if not isinstance(attribute, ast.Attribute):
        raise SourceRewriteError
    return replace_node(module, attribute, f"{node_text(module, attribute.value)}.{name}")


def with_first(module: SourceModule, call: ast.Call, text: str) -> SourceEdit:
    """Put a first argument into a call."""
    if call.args or call.keywords:
        first = replace_node(module, [*call.args, *call.keywords][0], "")
        return SourceEdit(first.line, first.column, first.line, first.column, f"{text}, ")
    return _insert_into_empty_call(module, call, text)


def _insert_into_empty_call(module: SourceModule, call: ast.Call, text: str) -> SourceEdit:
    """Put a text between the brackets of a call that is given nothing."""
    end = replace_node(module, call, "")
    return SourceEdit(end.end_line, end.end_column - 1, end.end_line, end.end_column - 1, text)


def wrap_in_call(module: SourceModule, node: ast.AST, function: str) -> Edits:
    """Put a call of a function around an expression."""
    start = replace_node(module, node, "")
    head = SourceEdit(start.line, start.column, start.line, start.column, f"{function}(")
    return [head, insert_behind(module, node, ")")]


def local_name_of(module: SourceModule, qualified: str) -> str:
    """Return what this file calls something of torch or numpy, e.g. `nn` or `torch.nn`."""
    for node in [*module.all(ast.Name), *module.all(ast.Attribute)]:
        if module.qualify(node) == qualified:
            return ast.unparse(node)
    head, _, last = qualified.rpartition(".")
    if not head:
        raise SourceRewriteError
    return f"{local_name_of(module, head)}.{last}"


def event_at(module: SourceModule, node: ast.AST, kind: str | None = None) -> tuple[Trace, TraceEvent]:
    """Return the event of the protocol that a node is."""
    for trace in module.program.traces_through(node):
        for event in trace.events:
            if event.node is node and kind in (None, event.kind):
                return trace, event
    raise SourceRewriteError


def receiver_text_at(module: SourceModule, node: ast.AST, receiver: ast.expr | None) -> str:
    """Return what an event was called on, if that can be written where the node stands."""
    if receiver is None or module.scope(receiver) is not module.scope(node):
        raise SourceRewriteError
    return node_text(module, receiver)


def sibling_statement(module: SourceModule, node: ast.AST, other: ast.AST) -> ast.AST:
    """Return the statement of the node's own block that the other node stands in."""
    block = module.parents[module.statement(node)]
    for each in [other, *module.ancestors(other)]:
        if module.parents.get(each) is block and isinstance(each, ast.stmt):
            return each
    raise SourceRewriteError


def next_event(module: SourceModule, node: ast.AST, kind: str) -> TraceEvent:
    """Return the next event of a kind in the same function."""
    trace, event = event_at(module, node)
    return _first_event_of_kind(module, trace.events[trace.events.index(event) + 1 :], event, kind)


def last_event(module: SourceModule, node: ast.AST, kind: str) -> TraceEvent:
    """Return the nearest earlier event of a kind in the same function."""
    trace, event = event_at(module, node)
    return _first_event_of_kind(module, trace.events[: trace.events.index(event)][::-1], event, kind)


def _first_event_of_kind(
    module: SourceModule, events: Sequence[TraceEvent], beside: TraceEvent, kind: str
) -> TraceEvent:
    for each in events:
        if each.kind == kind and module.scope(each.node) is module.scope(beside.node):
            return each
    raise SourceRewriteError


def _one_line_text(module: SourceModule, node: ast.AST) -> str:
    text = node_text(module, module.statement(node))
    if "\n" in text:
        raise SourceRewriteError
    return text


def _indentation(module: SourceModule, statement: ast.stmt) -> str:
    line = module.lines[statement.lineno - 1]
    return line[: len(line) - len(line.lstrip())]


def _statement_alone_on_lines(module: SourceModule, node: ast.AST) -> ast.stmt:
    """Return the statement of a node, which must have its lines for itself."""
    _demand_same_file(module, node)
    statement = module.statement(node)
    end = statement.end_lineno or statement.lineno
    head = module.lines[statement.lineno - 1].encode()[: statement.col_offset].decode()
    tail = module.lines[end - 1].encode()[statement.end_col_offset or 0 :].decode().strip()
    if head.strip() or (tail and not tail.startswith("#")):
        raise SourceRewriteError
    return statement
