# SPDX-License-Identifier: Apache-2.0
"""Hooks on every module call, while the watch looks closely; none at all at other times."""

from typing import Any

from torch import nn
from torch.nn.modules import module as module_calls

from truestep.doctor.runtime.dispatcher import Dispatcher
from truestep.doctor.runtime.ordinary import is_ordinary


class LayerHooks:
    """Tells of each module call, and which of them the user's code made itself."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._handles: list[Any] = []
        self._stack: list[nn.Module] = []

    def switch(self, live: bool) -> None:
        """Put the hooks on, or take them off; a compiled model is left alone."""
        if live and not self._handles and not self._dispatcher.recorder.history.compiled:
            self._attach()
        elif not live:
            self._detach()

    def _attach(self) -> None:
        self._stack.clear()
        self._handles = [
            module_calls.register_module_forward_pre_hook(self._before),
            module_calls.register_module_forward_hook(self._after, with_kwargs=True, always_call=True),
        ]

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
            # torch 2.13 leaves this one behind, and then warns of it in each compiled module
            module_calls._global_forward_hooks_with_kwargs.pop(handle.id, None)
        self._handles = []

    def _before(self, module: nn.Module, _args: Any) -> None:
        if is_ordinary() and self._dispatcher.sees():
            if not self._stack:
                self._dispatcher.recorder.begin_forward()
            self._stack.append(module)

    def _after(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        dispatcher = self._dispatcher
        if not is_ordinary() or not dispatcher.sees():
            return
        kwargs, output = rest if len(rest) == 2 else ({}, None)  # torch gives no kwargs where forward raised
        while self._stack and self._stack.pop() is not module:
            pass  # calls that ended in an exception
        if not dispatcher.live or output is None:
            return
        dispatcher.tell("on_layer", module, output)
        if not self._stack and not isinstance(module, nn.modules.loss._Loss):
            dispatcher.tell("on_forward", module, args, kwargs, output)
