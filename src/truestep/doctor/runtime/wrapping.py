# SPDX-License-Identifier: Apache-2.0
"""Replaces some twenty functions of torch by ones that tell the watch, and puts them back."""

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from truestep.core.frames import is_library_file

Maker = Callable[[Callable[..., Any]], Callable[..., Any]]


class WatchWrappers:
    """What was replaced, so that it can be put back exactly."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._wrapped: dict[int, tuple[Any, Any]] = {}

    def method(self, owner: Any, name: str, make: Maker) -> None:
        """Wrap a method that the class defines itself."""
        original = owner.__dict__.get(name)
        if original is None or not callable(original):
            return
        self._put(owner, name, original, functools.wraps(original)(make(original)))

    def function(self, owner: Any, name: str, make: Maker) -> None:
        """Wrap a function of a module; where the user's modules imported it before, `exchange` does."""
        original = getattr(owner, name, None)
        if original is None:
            return
        wrapped = functools.wraps(original)(make(original))
        self._put(owner, name, original, wrapped)
        self._wrapped[id(original)] = original, wrapped

    def _put(self, owner: Any, name: str, original: Any, wrapped: Any) -> None:
        def put_back() -> None:
            if (
                vars(owner).get(name) is wrapped
            ):  # else others have put theirs there meanwhile, or taken all away
                setattr(owner, name, original)

        setattr(owner, name, wrapped)
        self._undo.append(put_back)

    def exchange(self) -> None:
        """Put the wrapped functions where the user's modules hold them; each is gone through once, so that it stays cheap."""
        for names in _modules_of_the_user():
            # a name imported under an earlier watch holds that watch's wrapper
            held = [
                (key, *pair)
                for key, value in names.items()
                if (pair := self._wrapped.get(id(getattr(value, "__wrapped__", value))))
            ]
            for key, original, wrapped in held:
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
        self._wrapped.clear()
        while self._undo:
            self._undo.pop()()


def _modules_of_the_user() -> list[dict[str, Any]]:
    found = [vars(each) for each in list(sys.modules.values()) if isinstance(each, ModuleType)]
    return [
        names
        for names in found
        if names.get("__name__") == "__main__"
        or (isinstance(file := names.get("__file__"), str) and not is_library_file(file))
    ]
