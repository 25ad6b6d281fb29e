# SPDX-License-Identifier: Apache-2.0
"""Hooks on a module that its copies lack: `copy.deepcopy(module)` and `torch.save(module)` take along whatever hangs on it."""

from collections.abc import Callable
from typing import Any


class HookOfOriginal:
    """Calls a function as a hook of a module; in a copy of the module it does nothing, and what the function holds isn't copied."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *given: Any) -> Any:
        """Call the function."""
        return self._function(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (_nothing,)


def _nothing(*_: Any) -> None:
    pass
