# SPDX-License-Identifier: Apache-2.0
"""The wrapped calls of the training protocol; each does its own work first and tells the watch.

Every wrapper begins with one look at a flag: out of the window it costs a function call.
"""

import sys
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

from truestep.doctor.watcher import Forward
from truestep.doctor.watching.frames import user_place
from truestep.doctor.watching.ordinary import is_ordinary
from truestep.doctor.watching.wrapping import Wrappers

if TYPE_CHECKING:
    from truestep.doctor.watch import Watch

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
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
    _clearing(watch, wrappers)
    _gradients(watch, wrappers)
    _derivatives(watch, wrappers)
    _clipping(watch, wrappers)
    _schedules(watch, wrappers)
    _modules(watch, wrappers)
    _dropping(watch, wrappers)
    _switching_off(watch, wrappers)
    _compiling(watch, wrappers)
    _data(watch, wrappers)
    install_losses(watch, wrappers)


def install_losses(watch: "Watch", wrappers: Wrappers) -> None:
    """Wrap the losses alone."""
    for name in LOSSES:
        wrappers.function(F, name, _loss(watch, name))


def _optimizers(watch: "Watch", wrappers: Wrappers) -> None:
    def construction(original: Call) -> Call:
        def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            if watch.sees():
                watch.optimizer_made(self, user_place())

        return __init__

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if watch.live and is_ordinary() and watch.sees():
            watch.before_step(optimizer, len(args) > 1 or kwargs.get("closure") is not None)

    def after(optimizer: Optimizer, *_: Any) -> None:
        if watch.sees() and not torch.compiler.is_compiling():
            watch.after_step(optimizer)

    wrappers.method(Optimizer, "__init__", construction)
    wrappers.handle(register_optimizer_step_pre_hook(before))
    wrappers.handle(register_optimizer_step_post_hook(after))


def _clearing(watch: "Watch", wrappers: Wrappers) -> None:
    def clearing(original: Call) -> Call:
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if watch.live and watch.sees():
                watch.cleared(self)

        return zero_grad

    wrappers.method(Optimizer, "zero_grad", clearing)
    wrappers.method(nn.Module, "zero_grad", clearing)


def _gradients(watch: "Watch", wrappers: Wrappers) -> None:
    def backward(original: Call) -> Call:
        def wrapped(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not watch.live or not is_ordinary() or not watch.sees():
                return original(tensors, *args, **kwargs)
            roots = tensors if isinstance(tensors, list | tuple) else (tensors,)
            if any(
                each.is_meta for each in roots if isinstance(each, torch.Tensor)
            ):  # shapes without numbers
                watch.differentiated()
                return original(tensors, *args, **kwargs)
            watch.before_backward(roots)
            with watch.quiet():
                result = original(tensors, *args, **kwargs)
            watch.after_backward()
            return result

        return wrapped

    wrappers.method(torch.Tensor, "backward", backward)
    wrappers.function(torch.autograd, "backward", backward)


def _derivatives(watch: "Watch", wrappers: Wrappers) -> None:
    def grad(original: Call) -> Call:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and watch.live and is_ordinary() and watch.sees():
                watch.differentiated()
            return original(*args, **kwargs)

        return wrapped

    wrappers.function(torch.autograd, "grad", grad)


def _clipping(watch: "Watch", wrappers: Wrappers) -> None:
    def clip(original: Call) -> Call:
        def wrapped(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if watch.live and is_ordinary() and watch.sees():
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
            if not watch.live or not watch.sees():
                return original(self, *args, **kwargs)
            with watch.quiet():  # it may step schedules of its own
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
            if torch.compiler.is_compiling() or not watch.sees():
                return original(self, mode)  # type: ignore[no-any-return]
            with watch.quiet():
                original(self, mode)
            watch.mode_set(self, mode)
            return self

        return wrapped

    wrappers.method(nn.Module, "train", train)


def _switching_off(watch: "Watch", wrappers: Wrappers) -> None:
    def enter(original: Call) -> Call:
        def __enter__(self: Any) -> Any:  # noqa: N807
            if not torch.compiler.is_compiling() and watch.sees():
                watch.gradients_off()
            return original(self)

        return __enter__

    wrappers.method(torch.no_grad, "__enter__", enter)
    wrappers.method(torch.inference_mode, "__enter__", enter)


def _dropping(watch: "Watch", wrappers: Wrappers) -> None:
    def dropout(original: Call) -> Call:
        def wrapped(input: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            if not torch.compiler.is_compiling() and watch.live and training and p > 0:
                watch.drops = True
            return original(input, p, training, *args, **kwargs)

        return wrapped

    for name in DROPOUTS:
        wrappers.function(F, name, dropout)


def _compiling(watch: "Watch", wrappers: Wrappers) -> None:
    def compiling(original: Call) -> Call:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            watch.compiled()
            result = original(*args, **kwargs)
            _compiled_modules(watch, wrappers)
            return result

        return wrapped

    wrappers.function(torch, "compile", compiling)
    wrappers.method(nn.Module, "compile", compiling)
    _compiled_modules(watch, wrappers)


def _compiled_modules(watch: "Watch", wrappers: Wrappers) -> None:
    """Follow calls of compiled modules from outside: hooks within would change what is compiled."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    compiled = getattr(frames, "OptimizedModule", None)
    if compiled is None or hasattr(compiled.__call__, "__wrapped__"):
        return

    def call(original: Call) -> Call:
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if torch.compiler.is_compiling():
                return original(self, *args, **kwargs)
            watch.compiled()  # it may have been compiled before the watch
            output = original(self, *args, **kwargs)
            if watch.live and is_ordinary() and watch.sees():
                module, place = self._orig_mod, user_place()
                watch.forward(Forward(module, args, kwargs, output, place, torch.is_grad_enabled()))
            return output

        return __call__

    wrappers.method(compiled, "__call__", call)


def _data(watch: "Watch", wrappers: Wrappers) -> None:
    def iterating(original: Call) -> Call:
        def __iter__(self: Any) -> Any:  # noqa: N807
            if watch.sees():
                watch.epoch_started(self)
            return original(self)

        return __iter__

    wrappers.method(DataLoader, "__iter__", iterating)
    wrappers.method(DistributedSampler, "__iter__", iterating)


def _loss(watch: "Watch", name: str) -> Callable[[Call], Call]:
    def make(original: Call) -> Call:
        def wrapped(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            value = original(input, target, *args, **kwargs)
            if not torch.compiler.is_compiling() and watch.live and is_ordinary() and watch.sees():
                watch.loss(name, input, target, kwargs, value)
            return value

        return wrapped

    return make
