# SPDX-License-Identifier: Apache-2.0
"""Follows every operation of torch's while the watch looks closely; at other times nothing of it is left.

A mode of `torch.overrides` is told of each call, from outside of it: what is called, with what, is the same.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch._C import _len_torch_function_stack
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode
from torch.utils._device import DeviceContext

from truestep.doctor.runtime.concrete_tensors import watch_may_look

# they give numbers of Python's or NumPy's: what is told is that the values were read
_READS = frozenset(
    {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__repr__", "__format__"}
)
Tell = Callable[[str, Any, list[Tensor], tuple[Any, ...], dict[str, Any]], None]


class WatchedOperationMode(TorchFunctionMode):
    """Tells of each operation's result, of the tensors that it was given, and of all that it was given in order and by name."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell
        self._thread: int | None = None  # the one in which it is on

    @property
    def is_on(self) -> bool:
        """Whether operations are followed, in any thread."""
        return self._thread is not None

    @property
    def is_here(self) -> bool:
        """Whether operations of this thread are followed."""
        return self._thread == threading.get_ident()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute it, then tell of it."""
        result = func(*args, **(kwargs or {}))
        is_told = isinstance(result, (Tensor, tuple)) or getattr(func, "__name__", "") in _READS
        if (is_told or isinstance(result, list)) and self.is_on and watch_may_look():
            given = watched_operation_tensors(args, kwargs)
            made = result if isinstance(result, (Tensor, tuple, list)) else ()
            self._tell(watched_operation_name(func), made, given, args, kwargs or {})
        return result

    def switch(self, live: bool) -> None:
        """Put it on, or take it off, beneath the modes of the user's: those leave in their own order."""
        if live and not self.is_on and not _has_compiled():
            self._thread = threading.get_ident()
            _exchange_modes(lambda modes: _with_mode_beneath(modes, self))
        elif not live and self.is_on:
            here, self._thread = self._thread == threading.get_ident(), None
            if here:  # in another thread it stays, and tells nothing
                _exchange_modes(lambda modes: [each for each in modes if each is not self])


@contextlib.contextmanager
def without_watching_modes() -> Iterator[None]:
    """Within this no mode sees what is computed, but torch's own for the default device."""
    with _modes_left_out(lambda mode: not isinstance(mode, DeviceContext)):
        yield


@contextlib.contextmanager
def without_watched_operations() -> Iterator[None]:
    """Within this the watch follows no operation of this thread; modes of the user's stay."""
    with _modes_left_out(lambda mode: isinstance(mode, WatchedOperationMode)):
        yield


@contextlib.contextmanager
def _modes_left_out(is_left_out: Callable[[Any], bool]) -> Iterator[None]:
    """Within this some modes are off; a watch that ends or begins meanwhile stays off, or on, behind it."""
    before = _exchange_modes(lambda modes: [each for each in modes if not is_left_out(each)])
    try:
        yield
    finally:
        _exchange_modes(lambda modes: _restored_modes(before, modes))


def _exchange_modes(change: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Exchange the modes that are on; return those that were, the outermost first."""
    before: list[Any] = []
    while _len_torch_function_stack():
        before.insert(0, _pop_mode())  # type: ignore[no-untyped-call]
    for each in change(before):
        _push_mode(each)  # type: ignore[no-untyped-call]
    return before


def _restored_modes(before: list[Any], modes: list[Any]) -> list[Any]:
    """Return the modes that were on before, as far as the watch still follows by them, and what the watch put on since."""
    left = [each for each in before if not isinstance(each, WatchedOperationMode) or each.is_here]
    for each in modes:
        if isinstance(each, WatchedOperationMode) and each not in left:
            left = _with_mode_beneath(left, each)
    return left


def _with_mode_beneath(modes: list[Any], mode: WatchedOperationMode) -> list[Any]:
    """Return the modes with one more beneath them all: those of `with` blocks leave from the top, whichever is there.

    Only the mode of `torch.set_default_device` insists on the lowest place; it has entered itself, unlike that of
    `with torch.device(...)`.
    """
    others = [each for each in modes if each is not mode]
    first = int(bool(others) and isinstance(others[0], DeviceContext) and hasattr(others[0], "old_device"))
    return [*others[:first], mode, *others[first:]]


def _has_compiled() -> bool:
    """Tell whether anything has been compiled: compiled code depends on the modes that are on."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return any(map(callable, getattr(frames, "cached_backends", {}).values()))


def watched_operation_name(function: Any) -> str:
    """Return what an operation is called: `softmax`, `add` also where it is written `+`, `data` for an attribute."""
    name: str = getattr(function, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", "")
    return name if name in ("__getitem__", "__setitem__") else name.strip("_") or name


def watched_operation_tensors(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[Tensor]:
    """Return the tensors among an operation's arguments, also those in a list or tuple."""
    found: list[Tensor] = []
    for each in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, (list, tuple)):
            found += [part for part in each if isinstance(part, Tensor)]
    return found


def is_graph_cut(result: Any, given: list[Tensor]) -> bool:
    """Tell whether the graph ends here: numbers that can carry one came from numbers that do."""
    several = (result,) if isinstance(result, Tensor) else result
    made = [each for each in several if isinstance(each, Tensor)]
    if not made or any(each.requires_grad or not each.is_floating_point() for each in made):
        return False
    return any(each.requires_grad for each in given)
