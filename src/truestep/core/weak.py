# SPDX-License-Identifier: Apache-2.0
"""What knows an object and does not keep it: callbacks of its methods, and marks that tell it from another."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakMethod, ref


def weak_method_callback(method: Callable[..., None]) -> Callable[..., None]:
    """Return a callback for a method, which does nothing once the method's object is gone.

    For places that Python's collector can't see, or that live as long as the process: there a bound method would keep its
    object, and all that this holds.
    """
    return partial(_call_weak_method, WeakMethod(method))


def _call_weak_method(method: "WeakMethod[Callable[..., None]]", *arguments: Any) -> None:
    if (found := method()) is not None:
        found(*arguments)


class WeakIdentity:
    """Which object it is, without keeping it; another one may get its `id` later."""

    def __init__(self, value: Any) -> None:
        self._id = id(value)
        self._value: Callable[[], Any] = lambda: None
        with suppress(TypeError):  # of a list or dict nothing tells
            self._value = ref(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeakIdentity) and self._id == other._id and self._value() is other._value()

    __hash__ = None  # type: ignore[assignment]
