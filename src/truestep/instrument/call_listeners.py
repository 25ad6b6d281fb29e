# SPDX-License-Identifier: Apache-2.0
"""Functions and methods that listeners stand around: replaced once, whoever listens, and put back when the last has left.

A listener gives a layer, which makes of the call a function of the same arguments; the newest is asked first. Layers leave in any
order: a watch may end before or behind the run that it began in.
"""

import functools
from collections.abc import Callable
from typing import Any

Call = Callable[..., Any]
Layer = Callable[[Call], Call]


class InstrumentedCall:
    """A call with the layers around it; the outermost stands in its place, so that a single listener costs a single call."""

    def __init__(self, owner: Any, name: str, original: Call) -> None:
        self.original = self.called = original
        self._place = owner, name
        self._layers: list[Layer] = []

    def add(self, layer: Layer) -> None:
        """Put a layer around all others."""
        self._layers.append(layer)
        self._install_call(self._wrap_in_layer(self.called, layer))

    def remove(self, layer: Layer) -> None:
        """Take a layer away; behind the last the original is there again."""
        self._layers.remove(layer)
        self._install_call(functools.reduce(self._wrap_in_layer, self._layers, self.original))
        if not self._layers and _calls.get(key := _call_key(*self._place)) is self:
            del _calls[key]

    def _wrap_in_layer(self, inner: Call, layer: Layer) -> Call:
        return functools.wraps(self.original)(layer(inner))

    def _install_call(self, called: Call) -> None:
        owner, name = self._place
        if vars(owner).get(name) is self.called:  # else others have put theirs there, or taken all away
            setattr(owner, name, called)
        self.called = called


_calls: dict[tuple[int, str], InstrumentedCall] = {}


def wrap_with_layer(owner: Any, name: str, layer: Layer) -> InstrumentedCall | None:
    """Put a layer around a function of a module, or a method that a class defines itself; None where there is none.

    `remove(layer)` of what is returned takes it away.
    """
    now = vars(owner).get(name)
    if not callable(now):
        return None
    call = _calls.get(_call_key(owner, name))
    if call is None or call.called is not now:  # in what another library has put on top, ours stay
        call = _calls[_call_key(owner, name)] = InstrumentedCall(owner, name, now)
    call.add(layer)
    return call


def _call_key(owner: Any, name: str) -> tuple[int, str]:
    return id(owner), name
