# SPDX-License-Identifier: Apache-2.0
"""What a watch has put around calls of torch and others, so that all of it can be taken away."""

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from truestep.core.frames import is_library_file
from truestep.instrument.calls import InstrumentedCall, Layer, put_around


class WatchWrappers:
    """Layers around calls, and whatever else is to be undone."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._functions: dict[int, InstrumentedCall] = {}

    def method(self, owner: Any, name: str, layer: Layer) -> InstrumentedCall | None:
        """Put a layer around a method that the class defines itself."""
        if (call := put_around(owner, name, layer)) is not None:
            self._undo.append(functools.partial(call.remove, layer))
        return call

    def function(self, owner: Any, name: str, layer: Layer) -> None:
        """Put a layer around a function of a module; where the user's modules imported it before, `exchange` does."""
        if (call := self.method(owner, name, layer)) is not None:
            self._functions[id(call.original)] = call

    def exchange(self) -> None:
        """Put the wrapped functions where the user's modules hold them; each is gone through once, so that it stays cheap."""
        for names in _modules_of_the_user():
            # a name imported under an earlier watch holds what stood there then
            held = [
                (key, call)
                for key, value in names.items()
                if (call := self._functions.get(id(getattr(value, "__wrapped__", value))))
            ]
            for key, call in held:
                names[key] = call.called
                self._undo.append(functools.partial(names.__setitem__, key, call.original))

    def handle(self, handle: Any) -> None:
        """Note a hook's handle, to be removed."""
        self._undo.append(handle.remove)

    def call(self, function: Callable[[], None]) -> None:
        """Note anything else to be undone."""
        self._undo.append(function)

    def undo(self) -> None:
        """Put everything back, last first."""
        self._functions.clear()
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
