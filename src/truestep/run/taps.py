# SPDX-License-Identifier: Apache-2.0
"""Calls of torch's by which people train by hand: while a run is open, whoever follows them is told before each is made.

They are methods of torch's classes, replaced by ones that tell and go on, and put back when no run is open. An update of the
engine makes none of these calls, so it costs nothing.
"""

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad
from torch.optim import Optimizer, lr_scheduler

from truestep.doctor.runtime.wrapping import WatchWrappers
from truestep.engine.own_steps import UNDER_WAY, look_at_steps

Call = Callable[..., Any]


class TapFollower(Protocol):
    """Who is told; each may raise an error in the place of the call."""

    def steps(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step, and the engine did not ask for it."""

    def moves(self, schedule: Any) -> None:
        """A schedule is about to step, and the engine did not ask for it."""

    def clears(self, holder: Optimizer | nn.Module) -> None:
        """`zero_grad` of an optimizer or module is about to be called."""

    def clips(self, parameters: list[Tensor], by: str) -> None:
        """Gradients are about to be clipped."""

    def scales(self, scaler: GradScaler) -> None:
        """A loss is about to be multiplied by a scaler's factor."""

    def cannot_go_back(self, error: RuntimeError) -> None:
        """A backward began at what has no gradient."""

    def goes_back(self) -> Callable[[], None]:
        """A backward that is not the engine's begins; what is returned is called after it."""


_followers: "dict[int, weakref.ref[TapFollower]]" = {}
_wrappers = WatchWrappers()


def follow(follower: TapFollower) -> None:
    """Tell `follower` from now on."""
    if not _followers:
        _install()
    number = id(follower)
    _followers[number] = weakref.ref(
        follower, lambda _: _leave(number)
    )  # a run that was dropped is told no more


def unfollow(follower: TapFollower) -> None:
    """Tell it no more."""
    _leave(id(follower))


def _leave(number: int) -> None:
    if _followers.pop(number, None) is not None and not _followers:
        _wrappers.undo()


def _told() -> list[TapFollower]:
    return [each for reference in tuple(_followers.values()) if (each := reference()) is not None]


def _install() -> None:
    look_at_steps(_before_step)
    _wrappers.call(lambda: look_at_steps(None))
    for kind in vars(lr_scheduler).values():
        if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler):
            _wrappers.method(kind, "step", _schedule)
    for owner in (Optimizer, nn.Module):
        _wrappers.method(owner, "zero_grad", _tap(lambda each, holder, *_, **__: each.clears(holder)))
    _wrappers.method(GradScaler, "scale", _tap(lambda each, scaler, *_, **__: each.scales(scaler)))
    # what clip_grad_norm_ calls, under whatever name a script has imported that
    _wrappers.function(clip_grad, "_clip_grads_with_norm_", _tap(_clips_norm))
    for home in (nn.utils, clip_grad):
        _wrappers.function(home, "clip_grad_value_", _tap(_clips_value))
    _wrappers.function(torch.autograd, "backward", _backward)


def _tap(tell: Callable[..., None]) -> Callable[[Call], Call]:
    def make(original: Call) -> Call:
        def called(*arguments: Any, **keywords: Any) -> Any:
            if not torch.compiler.is_compiling():
                for each in _told():
                    tell(each, *arguments, **keywords)
            return original(*arguments, **keywords)

        return called

    return make


def _clips_norm(each: TapFollower, parameters: Any, max_norm: float, *_: Any, **__: Any) -> None:
    if max_norm < float("inf"):  # else it measures
        each.clips([parameters] if isinstance(parameters, Tensor) else parameters, "norm")


def _clips_value(each: TapFollower, parameters: Any, *_: Any, **__: Any) -> None:
    if isinstance(parameters, Tensor | list | tuple):  # a generator could be gone through once only
        each.clips([parameters] if isinstance(parameters, Tensor) else list(parameters), "value")


def _before_step(optimizer: Optimizer, *_: Any) -> None:
    if optimizer not in UNDER_WAY and not torch.compiler.is_compiling():
        for each in _told():
            each.steps(optimizer)


def _schedule(original: Call) -> Call:
    def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
        # a schedule may step others of its own, and its constructor takes a step
        if UNDER_WAY or not getattr(self, "_step_count", 1):
            return original(self, *arguments, **keywords)
        for each in _told():
            each.moves(self)
        UNDER_WAY.add(self)
        try:
            return original(self, *arguments, **keywords)
        finally:
            UNDER_WAY.discard(self)

    return step


def _backward(original: Call) -> Call:
    def backward(*arguments: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*arguments, **keywords)
        after = [each.goes_back() for each in _told()]
        try:
            result = original(*arguments, **keywords)
        except RuntimeError as error:
            if "does not require grad" in str(error):
                for each in _told():
                    each.cannot_go_back(error)
            raise
        for look in after:
            look()
        return result

    return backward
