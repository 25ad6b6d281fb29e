# SPDX-License-Identifier: Apache-2.0
"""The user's own source beside what runs of it: where a function is written, and the loops in which a line stands."""

import ast
import linecache
from functools import lru_cache
from inspect import ismethod, unwrap
from types import FrameType, FunctionType
from typing import Any

from truestep.core.user_frames import is_library_file

WrittenFunction = ast.FunctionDef | ast.Lambda
Loop = ast.For | ast.While


def unparse_cached(node: ast.AST) -> str:
    """Return what `ast.unparse` does, and keep it with the node: trees of files are kept, and each loop asks a thousand times."""
    if isinstance(node, ast.Name):
        return node.id
    kept = vars(node)
    if "_written" not in kept:
        match node:
            case ast.Attribute(value=ast.Name() | ast.Attribute() as held, attr=name):
                kept["_written"] = f"{unparse_cached(held)}.{name}"
            case _:
                kept["_written"] = ast.unparse(node)
    text: str = kept["_written"]
    return text


def unwrap_function(value: Any) -> Any:
    """Return the function behind a bound method, and behind what `functools.wraps` has put around it."""
    return unwrap(value.__func__ if ismethod(value) else value)


def function_node(function: FunctionType) -> WrittenFunction | None:
    """Return where a function of the user's is written; None where that is not known."""
    code = function.__code__
    if is_library_file(code.co_filename):
        return None
    written = _functions_and_loops(code.co_filename)
    found = [each for each in written if _is_definition_at_line(each, code.co_firstlineno, code.co_name)]
    return found[0] if len(found) == 1 and isinstance(found[0], WrittenFunction) else None


def _is_definition_at_line(node: ast.AST, line: int, name: str) -> bool:
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
    kinds = WrittenFunction | Loop
    tree = source_tree(path)
    return [each for each in (ast.walk(tree) if tree else ()) if isinstance(each, kinds)]


def enclosing_loops(frame: FrameType) -> list[Loop]:
    """Return the loops of a function in which its code stands, outermost first."""
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    written = _functions_and_loops(frame.f_code.co_filename)
    around = [
        each
        for each in written
        if isinstance(each, Loop) and first <= each.lineno <= line <= (each.end_lineno or 0)
    ]
    return sorted(around, key=lambda each: each.lineno)
