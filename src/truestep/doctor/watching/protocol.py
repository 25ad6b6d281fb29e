# SPDX-License-Identifier: Apache-2.0
"""The wrapped calls of the training protocol; each does its own work first and tells the watch.

Every wrapper begins with one look at a flag: out of the window it costs a function call.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from truestep.doctor.watching.frames import user_place
from truestep.doctor.watching.wrapping import Wrappers

if TYPE_CHECKING:
    from truestep.doctor.watch import Watch

LOSSES = (
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "gaussian_nll_loss",
    "poisson_nll_loss",
)
Call = Callable[..., Any]


def install(watch: "Watch", wrappers: Wrappers) -> None:
    """Wrap the calls of the protocol."""
    _optimizers(watch, wrappers)
    _gradients(watch, wrappers)
    _schedules(watch, wrappers)
    _modules(watch, wrappers)
    _data(watch, wrappers)
    for name in LOSSES:
        wrappers.function(F, name, _loss(watch, name))


def _optimizers(watch: "Watch", wrappers: Wrappers) -> None:
    def construction(original: Call) -> Call:
        def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            watch.optimizer_made(self, user_place())

        return __init__

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        watch.before_step(optimizer, len(args) > 1 or kwargs.get("closure") is not None)

    wrappers.method(Optimizer, "__init__", construction)
    wrappers.handle(register_optimizer_step_pre_hook(before))
    wrappers.handle(register_optimizer_step_post_hook(lambda optimizer, *_: watch.after_step(optimizer)))

    def clearing(original: Call) -> Call:
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if watch.live:
                watch.cleared(self)

        return zero_grad

    wrappers.method(Optimizer, "zero_grad", clearing)
    wrappers.method(nn.Module, "zero_grad", clearing)


def _gradients(watch: "Watch", wrappers: Wrappers) -> None:
    def backward(original: Call) -> Call:
        def wrapped(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not watch.live or watch.inside:
                return original(tensors, *args, **kwargs)
            with watch.backward(tensors if isinstance(tensors, list | tuple) else (tensors,)):
                return original(tensors, *args, **kwargs)

        return wrapped

    wrappers.method(torch.Tensor, "backward", backward)
    wrappers.function(torch.autograd, "backward", backward)

    def clip(original: Call) -> Call:
        def wrapped(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if watch.live:
                single = isinstance(parameters, torch.Tensor)
                parameters = parameters if single else list(parameters)  # it may be a generator
                watch.clipping([parameters] if single else parameters)
            return original(parameters, *args, **kwargs)

        return wrapped

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        for home in (torch.nn.utils, torch.nn.utils.clip_grad):
            wrappers.function(home, name, clip)


def _schedules(watch: "Watch", wrappers: Wrappers) -> None:
    def step(original: Call) -> Call:
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            watch.scheduled(self)
            return result

        return wrapped

    def construction(original: Call) -> Call:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            with watch.quiet():  # its constructor takes a step of its own
                original(self, *args, **kwargs)

        return __init__

    for each in vars(lr_scheduler).values():
        if isinstance(each, type) and issubclass(each, lr_scheduler.LRScheduler):
            wrappers.method(each, "step", step)
            wrappers.method(each, "__init__", construction)


def _modules(watch: "Watch", wrappers: Wrappers) -> None:
    def train(original: Call) -> Call:
        def wrapped(self: nn.Module, mode: bool = True) -> nn.Module:
            outermost = not watch.inside
            with watch.quiet():
                original(self, mode)
            if outermost:
                watch.mode_set(self, mode)
            return self

        return wrapped

    wrappers.method(nn.Module, "train", train)

    def compiling(original: Call) -> Call:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            watch.compiled()
            return original(*args, **kwargs)

        return wrapped

    wrappers.function(torch, "compile", compiling)


def _data(watch: "Watch", wrappers: Wrappers) -> None:
    def iterating(original: Call) -> Call:
        def __iter__(self: Any) -> Any:  # noqa: N807
            watch.epoch_started(self)
            return original(self)

        return __iter__

    wrappers.method(DataLoader, "__iter__", iterating)
    wrappers.method(DistributedSampler, "__iter__", iterating)


def _loss(watch: "Watch", name: str) -> Callable[[Call], Call]:
    def make(original: Call) -> Call:
        def wrapped(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            value = original(input, target, *args, **kwargs)
            if watch.live and not torch.compiler.is_compiling():
                watch.loss(name, input, target, kwargs, value)
            return value

        return wrapped

    return make
