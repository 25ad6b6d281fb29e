# SPDX-License-Identifier: Apache-2.0
"""The modules that a function can reach by the names it uses: of its closure, its globals, the object that it is a method of."""

import functools
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from torch import nn

from truestep.core.module_inspection import original_module
from truestep.core.user_frames import is_library_file

_DEEPEST = 4


def modules_referenced_by(function: Any) -> list[nn.Module]:
    """Return the modules that a function names, as far as names lead to them."""
    found: dict[int, nn.Module] = {}
    seen: set[int] = set()
    waiting = [(function, 0)]
    while waiting:
        value, depth = waiting.pop()
        if id(value) in seen or depth > _DEEPEST:
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module) or (not callable(value) and hasattr(value, "module")):
            module = original_module(value)
            found |= {} if module is None else {id(module): module}
        waiting += [(each, depth + 1) for each in _referenced_values(value)]
    return list(found.values())


def _referenced_values(value: Any) -> Iterator[Any]:
    if isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, FunctionType):
        if not is_library_file(value.__code__.co_filename):
            yield from (
                value.__globals__[name]
                for name in _names_in_code(value.__code__)
                if name in value.__globals__
            )
            yield from (cell.cell_contents for cell in value.__closure__ or () if _is_cell_filled(cell))
            yield from value.__defaults__ or ()
    elif isinstance(value, (list, tuple)):
        yield from value[:100]
    elif isinstance(value, dict):
        yield from list(value.values())[:100]
    elif not isinstance(value, (type, nn.Module)) and type(value).__module__ not in ("builtins", "torch"):
        own = getattr(value, "__dict__", None)
        yield from own.values() if isinstance(own, dict) else ()
        call = vars(type(value)).get("__call__")
        if isinstance(call, FunctionType):
            yield call


def _names_in_code(code: CodeType) -> set[str]:
    """Return the names that a function uses, and those of the functions within it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names, *(name for each in inner for name in _names_in_code(each))}


def _is_cell_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
