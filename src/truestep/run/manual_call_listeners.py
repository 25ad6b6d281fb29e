# SPDX-License-Identifier: Apache-2.0
"""Calls of torch's by which people train by hand: while a run is open, whoever listens is told before each is made.

Layers stand around them (`instrument/call_listeners.py`) that tell and go on. An update of the engine makes none of these calls, so
it costs nothing.
"""

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad
from torch.optim import Optimizer, lr_scheduler

from truestep.instrument.call_listeners import Call, InstrumentedCall, Layer, wrap_with_layer
from truestep.instrument.step_listeners import UNDER_WAY, run_as_engine_step, set_step_hook

if TYPE_CHECKING:
    from truestep.run.bypassed_learner_check import ManualTorchCallWatcher

_listeners: "dict[int, weakref.ref[ManualTorchCallWatcher]]" = {}
_placed: list[tuple[InstrumentedCall, Layer]] = []


def listen_to_manual_torch_calls(listener: "ManualTorchCallWatcher") -> None:
    """Tell `listener` of each call from now on, before it is made; it may raise an error in the place of the call."""
    if not _listeners:
        set_step_hook(_notify_before_optimizer_step)
        placed = (
            (wrap_with_layer(owner, name, layer), layer) for owner, name, layer in _torch_calls_to_wrap()
        )
        _placed.extend((call, layer) for call, layer in placed if call is not None)
    number = id(listener)
    # a run that was dropped is told no more
    _listeners[number] = weakref.ref(listener, lambda _: _remove_listener(number))


def stop_listening_to_torch_calls(listener: "ManualTorchCallWatcher") -> None:
    """Tell it no more."""
    _remove_listener(id(listener))


def _remove_listener(number: int) -> None:
    if _listeners.pop(number, None) is None or _listeners:
        return
    set_step_hook(None)
    while _placed:
        call, layer = _placed.pop()
        call.remove(layer)


def _live_listeners() -> "list[ManualTorchCallWatcher]":
    return [each for reference in tuple(_listeners.values()) if (each := reference()) is not None]


def _torch_calls_to_wrap() -> Iterator[tuple[Any, str, Layer]]:
    """Yield each call with what stands around it."""
    for kind in vars(lr_scheduler).values():
        if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler):
            yield kind, "step", _wrap_scheduler_step
    for owner in (Optimizer, nn.Module):
        yield owner, "zero_grad", _wrapper_that_notifies(lambda each, holder, *_, **__: each.clears(holder))
    yield GradScaler, "scale", _wrapper_that_notifies(lambda each, scaler, *_, **__: each.scales(scaler))
    # what clip_grad_norm_ calls, under whatever name a script has imported that
    yield clip_grad, "_clip_grads_with_norm_", _wrapper_that_notifies(_notify_clip_norm)
    for home in (nn.utils, clip_grad):
        yield home, "clip_grad_value_", _wrapper_that_notifies(_notify_clip_value)
    yield torch.autograd, "backward", _wrap_backward


def _wrapper_that_notifies(tell: Callable[..., None]) -> Layer:
    def wrap_call(original: Call) -> Call:
        def notify_and_call(*arguments: Any, **keywords: Any) -> Any:
            if not torch.compiler.is_compiling():
                for each in _live_listeners():
                    tell(each, *arguments, **keywords)
            return original(*arguments, **keywords)

        return notify_and_call

    return wrap_call


def _notify_clip_norm(
    each: "ManualTorchCallWatcher", parameters: Any, max_norm: float, *_: Any, **__: Any
) -> None:
    if max_norm < float("inf"):  # else it measures
        each.clips([parameters] if isinstance(parameters, Tensor) else parameters, "norm")


def _notify_clip_value(each: "ManualTorchCallWatcher", parameters: Any, *_: Any, **__: Any) -> None:
    if isinstance(parameters, Tensor | list | tuple):  # a generator could be gone through once only
        each.clips([parameters] if isinstance(parameters, Tensor) else list(parameters), "value")


def _notify_before_optimizer_step(optimizer: Optimizer, *_: Any) -> None:
    if optimizer not in UNDER_WAY and not torch.compiler.is_compiling():
        for each in _live_listeners():
            each.steps(optimizer)


def _wrap_scheduler_step(original: Call) -> Call:
    def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
        # a schedule may step others of its own, and its constructor takes a step
        if UNDER_WAY or not getattr(self, "_step_count", 1):
            return original(self, *arguments, **keywords)
        for each in _live_listeners():
            each.moves(self)
        return run_as_engine_step(self, original, self, *arguments, **keywords)

    return step


def _wrap_backward(original: Call) -> Call:
    def backward(*arguments: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*arguments, **keywords)
        after = [each.goes_back() for each in _live_listeners()]
        try:
            result = original(*arguments, **keywords)
        except RuntimeError as error:
            if "does not require grad" in str(error):
                for each in _live_listeners():
                    each.explain_failed_scaled_backward(error)
            raise
        for look in after:
            look()
        return result

    return backward
