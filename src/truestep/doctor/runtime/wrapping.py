# SPDX-License-Identifier: Apache-2.0
"""What a watch has put around calls of torch and others, so that all of it can be taken away."""

import functools
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Any

from truestep.core.user_frames import is_library_file
from truestep.instrument.call_listeners import InstrumentedCall, Layer, wrap_with_layer


class WatchWrappers:
    """Layers around calls, and whatever else is to be undone."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._functions: dict[int, InstrumentedCall] = {}

    def method(self, owner: Any, name: str, layer: Layer) -> InstrumentedCall | None:
        """Put a layer around a method that the class defines itself."""
        if (call := wrap_with_layer(owner, name, layer)) is not None:
            self._undo.append(functools.partial(call.remove, layer))
        return call

    def function(self, owner: Any, name: str, layer: Layer) -> None:
        """Put a layer around a function of a module; where the user's modules imported it before, `exchange` does."""
        if (call := self.method(owner, name, layer)) is not None:
            self._functions[id(call.original)] = call

    def exchange(self) -> None:
        """Put the wrapped functions where the user's modules hold them; each is gone through once, so that it stays cheap."""
        for names in _user_module_variables():
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


_looked_through: "_ModulesSeen | None" = None


@dataclass(frozen=True)
class _ModulesSeen:
    """The user's modules at a moment, and how to know which were imported since."""

    process: int
    number: int  # of all modules
    last: str
    found: tuple[dict[str, Any], ...]

    def later(self) -> list[str] | None:
        """Return the modules imported since in a forked child; None where all have to be looked through."""
        if self.process == os.getpid() or len(sys.modules) < self.number:
            return None
        *later, last = islice(reversed(sys.modules), len(sys.modules) - self.number + 1)
        return later if last == self.last else None


def _user_module_variables() -> tuple[dict[str, Any], ...]:
    """Return the variables of each module of the user's.

    A forked child looks at those alone that were imported since: one that touches some thousand modules copies 20 MB of memory,
    and that was half of its time.
    """
    global _looked_through
    later = None if _looked_through is None else _looked_through.later()
    if _looked_through is not None and later is not None:
        return (*_looked_through.found, *_user_modules_among([*later, "__main__"]))
    found = tuple(_user_modules_among(list(sys.modules)))
    _looked_through = _ModulesSeen(os.getpid(), len(sys.modules), next(reversed(sys.modules)), found)
    return found


def scan_later_modules() -> None:
    """Look, before a fork, at what was imported since the last look, so that no child has to."""
    if _looked_through is not None and _looked_through.number != len(sys.modules):
        _user_module_variables()


# by name: of thousands of modules few are the user's, and each watch looks for them
_of_libraries: dict[str, ModuleType] = {}


def _user_modules_among(modules: Iterable[str]) -> list[dict[str, Any]]:
    found = []
    for name in modules:
        module = sys.modules.get(name)
        if not isinstance(module, ModuleType) or _of_libraries.get(name) is module:
            continue
        names = vars(module)
        file = names.get("__file__")
        if names.get("__name__") == "__main__" or (isinstance(file, str) and not is_library_file(file)):
            found.append(names)
        elif isinstance(file, str):
            _of_libraries[name] = module
    return found
