# SPDX-License-Identifier: Apache-2.0
"""Replaces some twenty functions of torch by ones that tell the watch, and puts them back."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from truestep.doctor.watching.frames import is_library

Maker = Callable[[Callable[..., Any]], Callable[..., Any]]


class Wrappers:
    """What was replaced, so that it can be put back exactly."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

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
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if (file is not None and not is_library(file)) or getattr(module, "__name__", "") == "__main__":
                self._replace(vars(module), original, wrapped)

    def _replace(self, names: dict[str, Any], original: Any, wrapped: Any) -> None:
        for key in [key for key, value in names.items() if value is original]:
            names[key] = wrapped
            self._undo.append(functools.partial(names.__setitem__, key, original))

    def handle(self, handle: Any) -> None:
        """Note a hook's handle, to be removed."""
        self._undo.append(handle.remove)

    def call(self, function: Callable[[], None]) -> None:
        """Note anything else to be undone."""
        self._undo.append(function)

    def undo(self) -> None:
        """Put everything back, last first."""
        while self._undo:
            self._undo.pop()()
