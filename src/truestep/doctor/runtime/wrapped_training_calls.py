# SPDX-License-Identifier: Apache-2.0
"""The wrapped calls of the training protocol; each does its own work first and tells the gate.

Every wrapper begins with one look at a flag: out of the window it costs a function call.
"""

import sys
from collections.abc import Callable
from typing import Any

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
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.data.distributed import DistributedSampler

from truestep.doctor.runtime.concrete_tensors import watch_may_look
from truestep.doctor.runtime.dispatcher import Dispatcher
from truestep.doctor.runtime.user_code_line import watched_user_place
from truestep.doctor.runtime.wrapped_logging_calls import wrap_logging, wrap_writer
from truestep.doctor.runtime.wrapping import WatchWrappers
from truestep.instrument import backward_listeners

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
    "kl_div",
    "gaussian_nll_loss",
    "poisson_nll_loss",
)
Call = Callable[..., Any]


def wrap_protocol(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    """Wrap the calls of the protocol."""
    _wrap_optimizers(gate, wrappers)
    _wrap_zero_grad(gate, wrappers)
    _wrap_backward(gate, wrappers)
    _wrap_engine_updates(gate, wrappers)
    _wrap_autograd_grad(gate, wrappers)
    _wrap_clipping(gate, wrappers)
    _wrap_schedules(gate, wrappers)
    _wrap_modules(gate, wrappers)
    _wrap_dropout(gate, wrappers)
    _wrap_grad_switches(gate, wrappers)
    _wrap_compile(gate, wrappers)
    _wrap_data_loading(gate, wrappers)
    wrap_losses(gate, wrappers)
    wrap_logging(gate, wrappers)


def wrap_engine_loop(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    """Wrap what a run's own watch follows: losses, what goes backward, and what is compiled, as by an optimizer."""
    _wrap_compile(gate, wrappers)
    _wrap_engine_updates(gate, wrappers)
    wrap_losses(gate, wrappers)


def wrap_losses(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    """Wrap the losses alone."""
    for name in LOSSES:
        wrappers.function(F, name, _loss_wrapper(gate, name))


def _wrap_optimizers(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_optimizer_init(original: Call) -> Call:
        def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            if gate.is_call_of_user():
                gate.tell("on_optimizer", self)
                wrap_writer(gate, wrappers)  # by now the script has imported what it uses

        return __init__

    def tell_before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if gate.live and watch_may_look() and gate.is_call_of_user():
            # a wrapper that was given none hands on None
            has_closure = any(each is not None for each in (*args[1:2], kwargs.get("closure")))
            gate.tell("on_step", optimizer, has_closure)
            gate.rest_operations(not has_closure, but_for_gradients=gate.recorder.steps.shares(optimizer))

    def tell_after_step(optimizer: Optimizer, *_: Any) -> None:
        if not torch.compiler.is_compiling() and gate.is_call_of_user():
            gate.after_step(optimizer)

    wrappers.method(Optimizer, "__init__", wrap_optimizer_init)
    wrappers.handle(register_optimizer_step_pre_hook(tell_before_step))
    wrappers.handle(register_optimizer_step_post_hook(tell_after_step))


def _wrap_zero_grad(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_clear(original: Call) -> Call:
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
            if not gate.live or torch.compiler.is_compiling() or not gate.is_call_of_user():
                original(self, *args, **kwargs)
                return
            with gate.suppress_inner_calls():  # it reads gradients, to clear them
                original(self, *args, **kwargs)
            gate.tell("on_clear", self)

        return zero_grad

    wrappers.method(Optimizer, "zero_grad", wrap_clear)
    wrappers.method(nn.Module, "zero_grad", wrap_clear)


def _wrap_backward(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_backward_call(original: Call, *, is_counted: bool = False) -> Call:
        def observed_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if is_counted and gate.experiments is not None:
                gate.experiments.course.num_backwards += 1
            if not gate.live or not watch_may_look() or not gate.is_call_of_user():
                return original(tensors, *args, **kwargs)
            roots = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
            if any(
                each.is_meta for each in roots if isinstance(each, torch.Tensor)
            ):  # shapes without numbers
                gate.tell("differentiated")
                return original(tensors, *args, **kwargs)
            gate.tell(
                "on_objective", roots, any(each is not None for each in (*args[:1], *_backward_seeds(kwargs)))
            )
            gate.tell("on_backward", roots)
            with gate.suppress_inner_calls():
                result = original(tensors, *args, **kwargs)
            gate.tell("went_backward")
            return result

        return observed_backward

    wrappers.method(torch.Tensor, "backward", wrap_backward_call)
    # the method of a tensor comes through the function, too
    wrappers.function(
        torch.autograd, "backward", lambda original: wrap_backward_call(original, is_counted=True)
    )


def _wrap_engine_updates(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_update_backward(original: Call) -> Call:
        def observed_update_backward(values: tuple[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
            if gate.live and watch_may_look() and gate.is_call_of_user():
                gate.tell("on_objective", values)
            with gate.suppress_inner_calls():
                return original(values, *args, **kwargs)

        return observed_update_backward

    for name in ("in_this_thread", "on_devices"):
        wrappers.method(backward_listeners, name, wrap_update_backward)


def _backward_seeds(kwargs: dict[str, Any]) -> list[Any]:
    """Return what a backward begins with, where that is given by name."""
    return [kwargs.get(name) for name in ("gradient", "grad_tensors")]


def _wrap_autograd_grad(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_grad(original: Call) -> Call:
        def observed_grad(*args: Any, **kwargs: Any) -> Any:
            if (
                not torch.compiler.is_compiling()
                and gate.live
                and watch_may_look()
                and gate.is_call_of_user()
            ):
                gate.tell("differentiated")
            return original(*args, **kwargs)

        return observed_grad

    wrappers.function(torch.autograd, "grad", wrap_grad)


def _wrap_clipping(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_clip(original: Call) -> Call:
        def observed_clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            if not watch_may_look() or not gate.is_call_of_user():
                return original(parameters, *args, **kwargs)
            if gate.live:
                single = isinstance(parameters, torch.Tensor)
                parameters = parameters if single else list(parameters)  # it may be a generator
                gate.tell("on_clip", [parameters] if single else parameters)
            with gate.suppress_inner_calls():  # its own no_grad() is no evaluation
                return original(parameters, *args, **kwargs)

        return observed_clip

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        for home in (torch.nn.utils, torch.nn.utils.clip_grad):
            wrappers.function(home, name, wrap_clip)


def _wrap_schedules(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_schedule_step(original: Call) -> Call:
        def observed_schedule_step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not gate.live or not gate.is_call_of_user():
                return original(self, *args, **kwargs)
            with gate.suppress_inner_calls():  # it may step schedules of its own
                result = original(self, *args, **kwargs)
            gate.tell("on_schedule", self)
            return result

        return observed_schedule_step

    def wrap_schedule_init(original: Call) -> Call:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            with gate.suppress_inner_calls():  # its constructor takes a step of its own
                original(self, *args, **kwargs)
            if gate.is_call_of_user():
                gate.tell("scheduled", self)

        return __init__

    for each in vars(lr_scheduler).values():
        if isinstance(each, type) and issubclass(each, lr_scheduler.LRScheduler):
            wrappers.method(each, "step", wrap_schedule_step)
            wrappers.method(each, "__init__", wrap_schedule_init)


def _wrap_modules(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_train(original: Call) -> Call:
        def observed_train(self: nn.Module, mode: bool = True) -> nn.Module:
            if torch.compiler.is_compiling() or not gate.is_call_of_user():
                return original(self, mode)  # type: ignore[no-any-return]
            with gate.suppress_inner_calls():
                original(self, mode)
            if not mode and not gate.live and gate.pace.wakes_for_evaluation():
                gate.look(True)  # an evaluation is watched whenever it comes
            gate.tell("on_evaluation")
            gate.tell("on_mode", self, mode)
            return self

        return observed_train

    def wrap_load_state_dict(original: Call) -> Call:
        def load_state_dict(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if not torch.compiler.is_compiling() and gate.is_call_of_user():
                gate.tell("on_loaded", self, args[0] if args else kwargs.get("state_dict"))
            return result

        return load_state_dict

    wrappers.method(nn.Module, "train", wrap_train)
    wrappers.method(nn.Module, "load_state_dict", wrap_load_state_dict)


def _wrap_grad_switches(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_enter(original: Call) -> Call:
        def __enter__(self: Any) -> Any:  # noqa: N807
            compiling = torch.compiler.is_compiling()
            if not compiling and gate.is_call_of_user() and gate.pace.is_new_line(watched_user_place()):
                gate.look(True)  # at a line that was not there in the first steps it may be an evaluation
            return original(self)

        return __enter__

    wrappers.method(torch.no_grad, "__enter__", wrap_enter)
    wrappers.method(torch.inference_mode, "__enter__", wrap_enter)


def _wrap_dropout(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_dropout_function(original: Call) -> Call:
        def wrapped(input: Any, p: float = 0.5, training: bool = True, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            if not torch.compiler.is_compiling() and gate.live and training and p > 0:
                gate.recorder.layers.dropped()
            return original(input, p, training, *args, **kwargs)

        return wrapped

    for name in DROPOUTS:
        wrappers.function(F, name, wrap_dropout_function)


def _wrap_compile(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_compiler(original: Call) -> Call:
        def observed_compile(*args: Any, **kwargs: Any) -> Any:
            what = args[0] if args else kwargs.get("model")
            if what is not None:  # else it gives a decorator, which is called with the function
                _note_compiled(gate, what)
            result = original(*args, **kwargs)
            _wrap_compiled_modules(gate, wrappers)
            return result

        return observed_compile

    wrappers.function(torch, "compile", wrap_compiler)
    wrappers.method(nn.Module, "compile", wrap_compiler)
    _wrap_compiled_modules(gate, wrappers)


def _note_compiled(gate: Dispatcher, what: object) -> None:
    """Something is compiled: hooks on modules would change what it compiles."""
    gate.recorder.models.compiled(what)
    gate.switch_layers(False)


def _wrap_compiled_modules(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    """Follow calls of compiled modules from outside: hooks within would change what is compiled."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    compiled = getattr(frames, "OptimizedModule", None)
    if compiled is None or hasattr(compiled.__call__, "__wrapped__"):
        return

    def wrap_module_call(original: Call) -> Call:
        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if torch.compiler.is_compiling():
                return original(self, *args, **kwargs)
            _note_compiled(gate, self._orig_mod)  # it may have been compiled before the watch
            output = original(self, *args, **kwargs)
            if gate.live and watch_may_look() and gate.is_call_of_user():
                gate.tell("on_forward", self._orig_mod, args, kwargs, output)
            return output

        return __call__

    wrappers.method(compiled, "__call__", wrap_module_call)


def _wrap_data_loading(gate: Dispatcher, wrappers: WatchWrappers) -> None:
    def wrap_loader_iter(original: Call) -> Call:
        def __iter__(self: Any) -> Any:  # noqa: N807
            if gate.is_call_of_user():
                if gate.pace.wakes_for_pass(self):  # perhaps an evaluation: watched until the next step
                    gate.look(True)
                gate.tell("on_evaluation")
                gate.tell("on_epoch", self)
            return original(self)

        return __iter__

    def wrap_loader_next(original: Call) -> Call:
        def __next__(self: Any) -> Any:  # noqa: N807
            batch = original(self)
            if gate.live and gate.is_call_of_user():
                gate.tell("batch_loaded", self, batch)
            if gate.experiments is not None and not torch.compiler.is_compiling() and gate.is_call_of_user():
                return gate.experiments.batch_to_hand_over(self, batch)
            return batch

        return __next__

    wrappers.method(DataLoader, "__iter__", wrap_loader_iter)
    wrappers.method(_BaseDataLoaderIter, "__next__", wrap_loader_next)
    wrappers.method(DistributedSampler, "__iter__", wrap_loader_iter)


def _loss_wrapper(gate: Dispatcher, name: str) -> Callable[[Call], Call]:
    def wrap_loss(original: Call) -> Call:
        def observed_loss(input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            if (
                torch.compiler.is_compiling()
                or not gate.live
                or not watch_may_look()
                or not gate.is_call_of_user()
            ):
                return original(input, target, *args, **kwargs)
            with gate.suppress_inner_calls():
                value = original(input, target, *args, **kwargs)
            gate.tell("on_loss", name, input, target, kwargs, value)
            return value

        return observed_loss

    return wrap_loss
