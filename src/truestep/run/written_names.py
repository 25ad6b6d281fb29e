# SPDX-License-Identifier: Apache-2.0
"""The user's own source beside the objects that it names: what a written name stands for, without running anything."""

import ast
import linecache
from collections.abc import Mapping
from functools import lru_cache
from inspect import ismethod, unwrap
from types import FrameType, FunctionType
from typing import Any

from torch import nn

from truestep.core.frames import is_library_file
from truestep.engine.learner import Learner

MISSING = object()
"""What a name stands for that nobody knows."""
WrittenFunction = ast.FunctionDef | ast.Lambda
Loop = ast.For | ast.While


class WrittenNames:
    """What the names of a piece of source stand for, and what is written for them outside of it."""

    def __init__(self, names: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        self._names, self._texts = names, texts

    def text(self, node: ast.expr) -> str:
        """Return what is written, by the names outside."""
        text = ast.unparse(node)
        first, dot, rest = text.partition(".")
        return self._texts.get(first, first) + dot + rest

    def value(self, node: ast.expr) -> Any:
        """Return what a name, an attribute or a member written out stands for; no code of the user's runs."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, MISSING)
            case ast.Attribute(value=inner, attr=name):
                return _attribute(self.value(inner), name)
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                held = self.value(inner)
                if isinstance(held, nn.ModuleDict) or type(held) is dict:
                    return dict(held.items()).get(key, MISSING)
        return MISSING


def _attribute(held: Any, name: str) -> Any:
    if isinstance(held, Learner):
        if name == "module":
            return held.module
        held = held.module
    if isinstance(held, nn.Module) and name in ("forward", "__call__"):
        return held
    for place in (getattr(held, "__dict__", {}), *(vars(each) for each in type(held).__mro__)):
        if name in place:
            value = place[name]
            return value.__get__(held) if isinstance(value, FunctionType) and held is not None else value
    modules = getattr(held, "__dict__", {}).get("_modules", {})
    return modules.get(name, MISSING) if isinstance(modules, dict) else MISSING


def last_name(node: ast.expr) -> str | None:
    """Return the last name of what is written out: `target` of `self.target` and of `nets["target"]`."""
    match node:
        case (
            ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name)))
        ):
            return name
    return None


def plain_function(value: Any) -> Any:
    """Return the function behind a bound method, and behind what `functools.wraps` has put around it."""
    return unwrap(value.__func__ if ismethod(value) else value)


def function_node(function: FunctionType) -> WrittenFunction | None:
    """Return where a function of the user's is written; None where that is not known."""
    code = function.__code__
    if is_library_file(code.co_filename):
        return None
    written = _functions_and_loops(code.co_filename)
    found = [each for each in written if _begins_at(each, code.co_firstlineno, code.co_name)]
    return found[0] if len(found) == 1 and isinstance(found[0], ast.FunctionDef | ast.Lambda) else None


def _begins_at(node: ast.AST, line: int, name: str) -> bool:
    if isinstance(node, ast.Lambda):
        return name == "<lambda>" and node.lineno == line
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        return False
    return line in (node.lineno, *(each.lineno for each in node.decorator_list))


@lru_cache(maxsize=16)
def source_tree(path: str) -> ast.Module | None:
    """Return the source of a file, or of a notebook's cell."""
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return None


@lru_cache(maxsize=16)
def _functions_and_loops(path: str) -> list[ast.AST]:
    """Return what is asked for in each body of a loop, and in each function that it calls; to walk a file takes milliseconds."""
    kinds = ast.FunctionDef | ast.Lambda | ast.For | ast.While
    tree = source_tree(path)
    return [each for each in (ast.walk(tree) if tree else ()) if isinstance(each, kinds)]


def loops_around(frame: FrameType) -> list[ast.For | ast.While]:
    """Return the loops of a function in which its code stands, outermost first."""
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    written = _functions_and_loops(frame.f_code.co_filename)
    around = [
        each
        for each in written
        if isinstance(each, ast.For | ast.While) and first <= each.lineno <= line <= (each.end_lineno or 0)
    ]
    return sorted(around, key=lambda each: each.lineno)
