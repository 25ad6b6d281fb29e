# SPDX-License-Identifier: Apache-2.0
"""Calls of torch's by which people train by hand: while a run is open, whoever listens is told before each is made.

Layers stand around them (`instrument/calls.py`) that tell and go on. An update of the engine makes none of these calls, so it
costs nothing.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad
from torch.optim import Optimizer, lr_scheduler

from truestep.instrument.calls import Call, InstrumentedCall, Layer, put_around
from truestep.instrument.steps import UNDER_WAY, look_at_steps, make_own_step

if TYPE_CHECKING:
    from truestep.run.beside import BesideUpdates

_listeners: "dict[int, weakref.ref[BesideUpdates]]" = {}
_placed: list[tuple[InstrumentedCall, Layer]] = []


def listen_to_calls_by_hand(listener: "BesideUpdates") -> None:
    """Tell `listener` of each call from now on, before it is made; it may raise an error in the place of the call."""
    if not _listeners:
        look_at_steps(_before_step)
        placed = ((put_around(owner, name, layer), layer) for owner, name, layer in _layers())
        _placed.extend((call, layer) for call, layer in placed if call is not None)
    number = id(listener)
    # a run that was dropped is told no more
    _listeners[number] = weakref.ref(listener, lambda _: _stop_listening(number))


def ignore_calls_by_hand(listener: "BesideUpdates") -> None:
    """Tell it no more."""
    _stop_listening(id(listener))


def _stop_listening(number: int) -> None:
    if _listeners.pop(number, None) is None or _listeners:
        return
    look_at_steps(None)
    while _placed:
        call, layer = _placed.pop()
        call.remove(layer)


def _live_listeners() -> "list[BesideUpdates]":
    return [each for reference in tuple(_listeners.values()) if (each := reference()) is not None]


def _layers() -> Iterator[tuple[Any, str, Layer]]:
    """Yield each call with what stands around it."""
    for kind in vars(lr_scheduler).values():
        if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler):
            yield kind, "step", _schedule
    for owner in (Optimizer, nn.Module):
        yield owner, "zero_grad", _telling(lambda each, holder, *_, **__: each.clears(holder))
    yield GradScaler, "scale", _telling(lambda each, scaler, *_, **__: each.scales(scaler))
    # what clip_grad_norm_ calls, under whatever name a script has imported that
    yield clip_grad, "_clip_grads_with_norm_", _telling(_clips_norm)
    for home in (nn.utils, clip_grad):
        yield home, "clip_grad_value_", _telling(_clips_value)
    yield torch.autograd, "backward", _backward


def _telling(tell: Callable[..., None]) -> Layer:
    def make(original: Call) -> Call:
        def called(*arguments: Any, **keywords: Any) -> Any:
            if not torch.compiler.is_compiling():
                for each in _live_listeners():
                    tell(each, *arguments, **keywords)
            return original(*arguments, **keywords)

        return called

    return make


def _clips_norm(each: "BesideUpdates", parameters: Any, max_norm: float, *_: Any, **__: Any) -> None:
    if max_norm < float("inf"):  # else it measures
        each.clips([parameters] if isinstance(parameters, Tensor) else parameters, "norm")


def _clips_value(each: "BesideUpdates", parameters: Any, *_: Any, **__: Any) -> None:
    if isinstance(parameters, Tensor | list | tuple):  # a generator could be gone through once only
        each.clips([parameters] if isinstance(parameters, Tensor) else list(parameters), "value")


def _before_step(optimizer: Optimizer, *_: Any) -> None:
    if optimizer not in UNDER_WAY and not torch.compiler.is_compiling():
        for each in _live_listeners():
            each.steps(optimizer)


def _schedule(original: Call) -> Call:
    def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
        # a schedule may step others of its own, and its constructor takes a step
        if UNDER_WAY or not getattr(self, "_step_count", 1):
            return original(self, *arguments, **keywords)
        for each in _live_listeners():
            each.moves(self)
        return make_own_step(self, original, self, *arguments, **keywords)

    return step


def _backward(original: Call) -> Call:
    def backward(*arguments: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*arguments, **keywords)
        after = [each.goes_back() for each in _live_listeners()]
        try:
            result = original(*arguments, **keywords)
        except RuntimeError as error:
            if "does not require grad" in str(error):
                for each in _live_listeners():
                    each.cannot_go_back(error)
            raise
        for look in after:
            look()
        return result

    return backward
