# SPDX-License-Identifier: Apache-2.0
"""Replaces some twenty functions of torch by ones that tell the watch, and puts them back."""

import functools
import sys
from collections import defaultdict
from collections.abc import Callable
from types import ModuleType
from typing import Any

from truestep.doctor.runtime.frames import is_library

Maker = Callable[[Callable[..., Any]], Callable[..., Any]]


class Wrappers:
    """What was replaced, so that it can be put back exactly."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._places: dict[int, list[tuple[dict[str, Any], str]]] | None = None

    def method(self, owner: Any, name: str, make: Maker) -> None:
        """Wrap a method that the class defines itself."""
        original = owner.__dict__.get(name)
        if original is None or not callable(original):
            return
        setattr(owner, name, functools.wraps(original)(make(original)))
        self._undo.append(lambda: setattr(owner, name, original))

    def function(self, owner: Any, name: str, make: Maker) -> None:
        """Wrap a function of a module, also where the user's modules imported it before."""
        original = getattr(owner, name, None)
        if original is None:
            return
        wrapped = functools.wraps(original)(make(original))
        setattr(owner, name, wrapped)
        self._undo.append(lambda: setattr(owner, name, original))
        for names, key in self._named_by_the_user(original):
            names[key] = wrapped
            self._undo.append(functools.partial(names.__setitem__, key, original))

    def _named_by_the_user(self, original: Any) -> list[tuple[dict[str, Any], str]]:
        """Return where the user's modules hold a function; they are gone through once, so that wrapping stays cheap."""
        if self._places is None:
            self._places = defaultdict(list)
            for names in _modules_of_the_user():
                for key, value in names.items():
                    # a name imported under an earlier watch holds that watch's wrapper
                    self._places[id(getattr(value, "__wrapped__", value))].append((names, key))
        return self._places.get(id(original), [])

    def handle(self, handle: Any) -> None:
        """Note a hook's handle, to be removed."""
        self._undo.append(handle.remove)

    def call(self, function: Callable[[], None]) -> None:
        """Note anything else to be undone."""
        self._undo.append(function)

    def undo(self) -> None:
        """Put everything back, last first."""
        self._places = None
        while self._undo:
            self._undo.pop()()


def _modules_of_the_user() -> list[dict[str, Any]]:
    found = [vars(each) for each in list(sys.modules.values()) if isinstance(each, ModuleType)]
    return [
        names
        for names in found
        if names.get("__name__") == "__main__"
        or (isinstance(file := names.get("__file__"), str) and not is_library(file))
    ]
