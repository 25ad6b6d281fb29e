# SPDX-License-Identifier: Apache-2.0
"""Follows a value into the user's function that returned it: the line that made it there, and what it ran under."""

import ast
import inspect
import types
from collections.abc import Iterator
from typing import Any

from truestep.explainer.crash import Crash, CrashFrame
from truestep.explainer.source import (
    EvidenceLine,
    crashed_file_name,
    crashed_file_nodes,
    crashed_line_without_strings,
    line_that_made,
)

_OFF = ("no_grad", "inference_mode")


def line_that_made_within(frame: CrashFrame, line: EvidenceLine, name: str) -> EvidenceLine | None:
    """Return the line of a user's function that made what `name = function(...)` gave; None where that is not the form."""
    assignment = _assignment(line)
    if assignment is None or not isinstance(assignment.value, ast.Call):
        return None
    function = _function(frame, assignment.value.func)
    code = getattr(function, "__code__", None)
    if code is None or not CrashFrame(code.co_filename, 0, "").is_users:
        return None
    returned = _returned(code)
    if returned is None:
        return None
    value = _part(assignment.targets[0], returned.value, name)
    if isinstance(value, ast.Name | ast.Attribute):
        return line_that_made(code.co_filename, ast.unparse(value), returned.lineno)
    return EvidenceLine(
        code.co_filename, returned.lineno, crashed_line_without_strings(code.co_filename, returned.lineno)
    )


def call_without_gradients(crash: Crash, name: str) -> str | None:
    """Return which user's function made a value under no_grad or inference_mode, by its decorator."""
    line, frame = crash.made(name), crash.user
    assignment = _assignment(line) if line is not None else None
    for call in ast.walk(assignment.value) if assignment is not None and frame is not None else ():
        function = _function(frame, call.func) if isinstance(call, ast.Call) and frame is not None else None
        kind, inner = _switch(function), inspect.unwrap(function) if callable(function) else None
        code = getattr(inner, "__code__", None)
        if kind and code is not None:
            return f"{code.co_name} ({crashed_file_name(code.co_filename)}:{code.co_firstlineno}) runs under @torch.{kind}()"
    return None


def _assignment(line: EvidenceLine) -> ast.Assign | None:
    found = crashed_file_nodes(line.path, ast.Assign)
    return next((node for node in found if node.lineno == line.number), None)


def _function(frame: CrashFrame, node: ast.AST) -> Any:
    """Return the function that a plain name stands for."""
    found = frame.lookup(node.id) if isinstance(node, ast.Name) else None
    return found if isinstance(found, types.FunctionType) else None


def _returned(code: types.CodeType) -> ast.Return | None:
    """Return the last `return` with a value of a function."""
    named = [
        node for node in crashed_file_nodes(code.co_filename, ast.FunctionDef) if node.name == code.co_name
    ]
    # By its first line: a file may define several functions of one name, methods above all.
    function = next((node for node in named if _first_line(node) == code.co_firstlineno), None)
    returns = [node for node in _own(function) if isinstance(node, ast.Return) and node.value is not None]
    return max(returns, key=lambda node: node.lineno, default=None)


def _first_line(function: ast.FunctionDef) -> int:
    """Return the line that Python takes for a function's first: that of its first decorator."""
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _own(function: ast.FunctionDef | None) -> Iterator[ast.AST]:
    """Yield the nodes of a function, but for those of the functions inside it."""
    waiting: list[ast.AST] = list(function.body) if function is not None else []
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield node
            waiting += ast.iter_child_nodes(node)


def _part(target: ast.AST, value: ast.AST | None, name: str) -> ast.AST | None:
    """Return the part of what is returned that a name is given."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = zip(target.elts, value.elts, strict=True)
        return next((part for each, part in pairs if ast.unparse(each) == name), None)
    return value


def _switch(function: Any) -> str:
    """Return the name of the switch that torch's decorator put around a function."""
    if not hasattr(function, "__wrapped__") or not function.__code__.co_filename.endswith("_contextlib.py"):
        return ""
    # torch's decorator keeps the switch as the owner of a bound method, `ctx_factory = switch.clone` (torch 2.13).
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    owner = getattr(getattr(cells.get("ctx_factory"), "cell_contents", None), "__self__", None)
    return type(owner).__name__ if type(owner).__name__ in _OFF else ""
