# SPDX-License-Identifier: Apache-2.0
"""The user's own source beside the objects that it names: what a written name stands for, without running anything."""

import ast
import sys
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType, MemberDescriptorType
from typing import Any, NamedTuple

from torch import nn

from truestep.core.source_lookup import unparse_cached
from truestep.core.user_frames import is_library_file
from truestep.engine.learner import Learner

MISSING = object()
"""What a name stands for that nobody knows."""


class SourceNameResolver:
    """What the names of a piece of source stand for, and what is written for them outside of it."""

    def __init__(self, names: Mapping[str, Any], texts: Mapping[str, str]) -> None:
        self._names, self._texts = names, texts

    def text(self, node: ast.expr) -> str:
        """Return what is written, by the names outside."""
        text = unparse_cached(node)
        first, dot, rest = text.partition(".")
        return self._texts.get(first, first) + dot + rest

    def has_name_outside(self, name: str) -> bool:
        """Whether a name of the piece's own stands for what has one outside, as a method's `self` does."""
        return name in self._texts

    def value(self, node: ast.expr) -> Any:
        """Return what a name, an attribute or a member written out stands for; no code of the user's runs."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, MISSING)
            case ast.Attribute(value=inner, attr=name):
                return _static_attribute(self.value(inner), name)
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                held = self.value(inner)
                if isinstance(held, nn.ModuleDict) or type(held) is dict:
                    return dict(held.items()).get(key, MISSING)
        return MISSING


def _static_attribute(held: Any, name: str) -> Any:
    if isinstance(held, Learner):
        if name == "module":
            return held.module
        held = held.module
    if isinstance(held, nn.Module) and name in ("forward", "__call__"):
        return held
    for place in (getattr(held, "__dict__", {}), *(vars(each) for each in type(held).__mro__)):
        if name in place:
            value = place[name]
            if isinstance(value, MemberDescriptorType):  # of `__slots__`
                with suppress(AttributeError):  # one that nothing was put into
                    return value.__get__(held)
                return MISSING
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


class LoopPiece(NamedTuple):
    """What runs in each body: of the loop itself, or of a function that it calls."""

    nodes: list[ast.AST]
    names: SourceNameResolver
    called: str = ""
    """What the function is called where it is named."""


def is_users_object(value: Any) -> bool:
    """Whether an object is of a class that the user has written, and has attributes."""
    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None)
    is_own = type(value).__module__ == "__main__" or (isinstance(file, str) and not is_library_file(file))
    return is_own and hasattr(value, "__dict__")
