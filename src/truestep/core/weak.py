# SPDX-License-Identifier: Apache-2.0
"""Callbacks that don't keep the object whose method they call."""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakMethod


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """Return a callback for a method, which does nothing once the method's object is gone.

    For places that Python's collector can't see, or that live as long as the process: there a bound method would keep its
    object, and all that this holds.
    """
    return partial(_call, WeakMethod(method))


def _call(method: "WeakMethod[Callable[..., None]]", *arguments: Any) -> None:
    if (found := method()) is not None:
        found(*arguments)
