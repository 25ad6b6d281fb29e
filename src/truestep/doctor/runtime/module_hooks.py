# SPDX-License-Identifier: Apache-2.0
"""Hooks on every module call and operation, while the watch looks closely; none at all at other times."""

from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as module_calls

from truestep.doctor.runtime.concrete_tensors import watch_may_look
from truestep.doctor.runtime.dispatcher import Dispatcher
from truestep.doctor.runtime.operations import WatchedOperationMode

# in eval mode they compute by another kernel, and otherwise where a mode of torch.overrides is on
FAST = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)


class WatchedLayerHooks:
    """Tells of each operation and each module call, and which of these the user's code made itself."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._handles: list[Any] = []
        self._operations = WatchedOperationMode(self._tell_operation)
        self._unfollowed: nn.Module | None = None  # the module at work, in which operations are not followed
        self._only_gradients = False  # in a step of which nothing else is asked

    def switch(self, live: bool) -> None:
        """Put the hooks on, or take them off; a compiled model is left alone."""
        if live and not self._handles and not self._dispatcher.recorder.history.compiled:
            self._attach_hooks()
        elif not live:
            self._detach_hooks()

    def rest(self, resting: bool, *, but_for_gradients: bool = False) -> None:
        """Leave out the operations of an optimizer's step: nothing asks for them, and they are most of all there are.

        Args:
            resting: whether a step begins, or has ended.
            but_for_gradients: whether it is to be seen that the step reads gradients.
        """
        self._only_gradients = resting and but_for_gradients
        off = resting and not but_for_gradients
        if self._handles and self._unfollowed is None and self._operations.is_here is off:
            self._operations.switch(not off)

    def _attach_hooks(self) -> None:
        self._operations.switch(True)
        self._handles = [
            module_calls.register_module_forward_pre_hook(self._before_module_call),
            module_calls.register_module_forward_hook(
                self._after_forward, with_kwargs=True, always_call=True
            ),
        ]

    def _detach_hooks(self) -> None:
        self._operations.switch(False)
        for handle in self._handles:
            handle.remove()
            # torch 2.13 leaves this one behind, and then warns of it in each compiled module
            module_calls._global_forward_hooks_with_kwargs.pop(handle.id, None)
        self._handles = []

    def _before_module_call(self, module: nn.Module, _args: Any) -> None:
        if watch_may_look() and self._dispatcher.is_call_of_user():
            self._dispatcher.recorder.layers.enter(module)
            if isinstance(module, FAST) and not module.training and self._operations.is_on:
                self._operations.switch(False)
                self._unfollowed = module

    def _after_forward(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        dispatcher = self._dispatcher
        if not watch_may_look() or not dispatcher.is_call_of_user():
            return
        if self._unfollowed is module:
            self._unfollowed = None
            self._operations.switch(bool(self._handles))
        kwargs, output = rest if len(rest) == 2 else ({}, None)  # torch gives no kwargs where forward raised
        outermost = dispatcher.recorder.layers.leave(module)
        if not dispatcher.live or output is None:
            return
        dispatcher.tell("on_layer", module, output)
        if outermost and not isinstance(module, nn.modules.loss._Loss):
            dispatcher.tell("on_forward", module, args, kwargs, output)

    def _tell_operation(
        self, name: str, result: Any, given: list[Tensor], args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if not self._dispatcher.live or not self._dispatcher.is_call_of_user():
            return
        if self._dispatcher.hears is not None:
            self._dispatcher.hears(name, named)
        if name == "grad" and isinstance(result, Tensor):
            self._dispatcher.recorder.steps.read_gradient()
        if not self._only_gradients:
            self._dispatcher.tell("on_operation", name, result, given, args)
