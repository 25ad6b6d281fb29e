# SPDX-License-Identifier: Apache-2.0
"""Data that is known to have no end, by the source of what makes it: an evaluation of it would never be over."""

import ast
import inspect
import itertools
from collections.abc import Iterator
from operator import length_hint
from types import FunctionType
from typing import Any

from truestep.core.source_lookup import Loop, function_node, unwrap_function

_WAYS_OUT = ast.Break | ast.Return | ast.Raise | ast.Try | ast.Match
_OF_ITS_OWN = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def endless_reason(data: Any) -> str:
    """Return why data has no end, as the end of a sentence; "" where it has one, or nobody knows."""
    if type(data) in (itertools.cycle, itertools.count, itertools.repeat):
        return f"itertools.{type(data).__name__} goes on for ever" if length_hint(data, -1) < 0 else ""
    made = data if inspect.isroutine(data) else getattr(type(data), "__iter__", None)
    function = unwrap_function(made) if made is not None else None
    if not isinstance(function, FunctionType):
        return ""
    loop = _endless_loop(function)
    if loop is None:
        return ""
    place = f"{function.__code__.co_filename.rpartition('/')[2]}:{loop.lineno}"
    return (
        f"`{ast.unparse(loop).partition(chr(10))[0]}` ({place}) in {function.__qualname__} is left by nothing"
    )


def _endless_loop(function: FunctionType) -> Loop | None:
    """Return the loop at the end of a generator's own statements that nothing ends."""
    written = function_node(function) if inspect.isgeneratorfunction(function) else None
    if not isinstance(written, ast.FunctionDef) or any(
        isinstance(each, ast.Return) for each in _own_nodes(written)
    ):
        return None
    found = (each for each in written.body if isinstance(each, Loop) and _is_endless_loop(each))
    return next(found, None)


def _is_endless_loop(loop: Loop) -> bool:
    if any(isinstance(each, _WAYS_OUT) for each in _own_nodes(loop)):
        return False
    if not any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own_nodes(loop)):
        return False
    if isinstance(loop, ast.While):
        return isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    called = ast.unparse(loop.iter.func) if isinstance(loop.iter, ast.Call) else ""
    return called.rpartition(".")[2] in ("count", "cycle")


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands within, but for what functions and classes in it have of their own."""
    for each in ast.iter_child_nodes(node):
        if not isinstance(each, _OF_ITS_OWN):
            yield each
            yield from _own_nodes(each)
