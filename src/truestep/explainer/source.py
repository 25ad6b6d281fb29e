# SPDX-License-Identifier: Apache-2.0
"""The user's own text: the expression that failed, and the line that made a value."""

import ast
import linecache
import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

_STRING = re.compile(r"""(?:\"{3}|'{3}).*?(?:\"{3}|'{3}|$)|"(?:\\.|[^"\\])*(?:"|$)|'(?:\\.|[^'\\])*(?:'|$)""")
_DEVICE = re.compile(r"""["'](?:cpu|cuda|mps|xpu|meta)(?::\d+)?["']""")  # tells why, and is no secret


Node = TypeVar("Node", bound=ast.AST)
_NO_TREE = ast.Module([], [])


@dataclass(frozen=True)
class UserSourceLine:
    """A line of the user's, with its text."""

    path: str
    number: int
    text: str


def file_name_of_any_system(path: str) -> str:
    """Return a path's last part, whichever system it is of."""
    return path.replace("\\", "/").rpartition("/")[2]


def parse_crashed_file(path: str) -> ast.Module | None:
    """Return the file's syntax tree; None where it can't be read or parsed."""
    return _parse_or_none("".join(linecache.getlines(path)))


def crashed_file_nodes_of_type(path: str, kind: type[Node]) -> list[Node]:
    """Return what a file holds of one kind of syntax; nothing where it can't be read or parsed."""
    tree = parse_crashed_file(path)
    return [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, kind)]


@lru_cache(maxsize=16)
def _parse_or_none(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def crashed_line_text(path: str, number: int) -> str:
    """Return one line, stripped."""
    return linecache.getline(path, number).strip()


def crashed_line_without_strings(path: str, number: int) -> str:
    """Return one line, stripped, for a line that the traceback does not show: its strings may be secrets."""
    return _STRING.sub(_hide_non_device_literal, crashed_line_text(path, number))


def _hide_non_device_literal(literal: re.Match[str]) -> str:
    return literal[0] if _DEVICE.fullmatch(literal[0]) else '"..."'


def parsed_traceback_line(text: str) -> ast.AST | None:
    """Parse one line on its own, as a log shows it: `for x in y:` and unclosed calls too."""
    text = textwrap.dedent(text).strip()
    for attempt in (text, f"{text} pass", f"{text}\n    pass", f"try: pass\n{text} pass", f"{text})"):
        try:
            return ast.parse(attempt)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def failing_expression(path: str, first: int, last: int, columns: tuple[int, int] | None) -> ast.AST | None:
    """Return the node of the failing instruction, or else the statement around its line."""
    tree = parse_crashed_file(path)
    if tree is None:
        return None
    holding = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.expr | ast.stmt) and node.lineno <= first and (node.end_lineno or 0) >= last
    ]
    if columns is not None:
        exact = [node for node in holding if _has_exact_position(node, first, last, columns)]
        if exact:
            return exact[0]
    statements = [node for node in holding if isinstance(node, ast.stmt) and node.end_lineno is not None]
    smallest = min(statements, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)
    return _header_expression(smallest)


def _has_exact_position(node: ast.expr | ast.stmt, first: int, last: int, columns: tuple[int, int]) -> bool:
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == (first, last, *columns)


def _header_expression(node: ast.stmt | None) -> ast.AST | None:
    """Return what a statement of several lines evaluates itself, without its body."""
    if isinstance(node, ast.For | ast.AsyncFor):
        return node.iter
    if isinstance(node, ast.If | ast.While):
        return node.test
    if isinstance(node, ast.With | ast.AsyncWith):
        return node.items[0].context_expr
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Try):
        return None
    return node


def last_assignment_line(path: str, name: str, before: int) -> UserSourceLine | None:
    """Return the line that gave a name its value: for `x` in its function, for `self.x` in its class."""
    is_attribute = name.startswith("self.")
    scope = enclosing_scope_in_file(path, before, ast.ClassDef if is_attribute else ast.FunctionDef)
    lines = [
        node.lineno
        for node in ast.walk(scope)
        if isinstance(node, ast.stmt) and _is_assignment_to_name(node, name)
    ]
    earlier = [number for number in lines if number < before or is_attribute]
    if not earlier and not isinstance(scope, ast.Module):
        earlier = [
            node.lineno
            for node in (parse_crashed_file(path) or _NO_TREE).body
            if _is_assignment_to_name(node, name)
        ]
    number = max(earlier, default=0)
    return UserSourceLine(path, number, crashed_line_without_strings(path, number)) if number else None


def is_name_only_growing_in_loop(path: str, name: str, line: int) -> bool:
    """Whether a loop around the line, or in its function, only ever adds to a name: `x += y`, `x = x + y`."""
    nodes = ast.walk(enclosing_scope_in_file(path, line, ast.FunctionDef))
    for loop in (each for each in nodes if isinstance(each, ast.For | ast.While)):
        gives = [node for part in loop.body for node in ast.walk(part) if _is_assignment_to_name(node, name)]
        if gives and all(_is_addition_to_name(node, name) for node in gives):
            return True
    return False


def _is_addition_to_name(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(ast.unparse(each) == name for each in ast.walk(node.value) if isinstance(each, ast.expr))
    return isinstance(node, ast.AugAssign)


def enclosing_scope_in_file(path: str, line: int, kind: type[ast.ClassDef | ast.FunctionDef]) -> ast.AST:
    """Return the innermost class or function around a line; the whole file where there is none."""
    nodes = crashed_file_nodes_of_type(path, kind)
    around = [node for node in nodes if node.lineno <= line <= (node.end_lineno or 0)]
    return max(around, key=lambda node: node.lineno, default=parse_crashed_file(path) or _NO_TREE)


def _is_assignment_to_name(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
        targets = [node.target]
    else:
        return False
    flat = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return any(ast.unparse(each) == name for each in flat)
