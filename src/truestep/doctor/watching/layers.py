# SPDX-License-Identifier: Apache-2.0
"""Hooks on every module call, while the watch looks closely; none at all at other times."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as module_calls

from truestep.doctor.watcher import Forward
from truestep.doctor.watching.frames import user_place
from truestep.doctor.watching.ordinary import is_ordinary

if TYPE_CHECKING:
    from truestep.doctor.watch import Watch


class LayerHooks:
    """Tells the watch of each module call, and which of them the user's code made itself."""

    def __init__(self, watch: "Watch") -> None:
        self.watch = watch
        self._handles: list[Any] = []
        self._stack: list[nn.Module] = []

    def attach(self) -> None:
        """Begin; a compiled model is left alone."""
        if self._handles or self.watch.scene.compiled:
            return
        self._stack.clear()
        self._handles = [
            module_calls.register_module_forward_pre_hook(self._before),
            module_calls.register_module_forward_hook(self._after, with_kwargs=True, always_call=True),
        ]

    def detach(self) -> None:
        """End."""
        for handle in self._handles:
            handle.remove()
            # torch 2.13 leaves this one behind, and then warns of it in each compiled module
            module_calls._global_forward_hooks_with_kwargs.pop(handle.id, None)
        self._handles = []

    def _before(self, module: nn.Module, _args: Any) -> None:
        if is_ordinary() and self.watch.sees():
            if not self._stack:
                self.watch.drops = False  # a checkpoint's recomputation drops too
            self._stack.append(module)

    def _after(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        if not is_ordinary() or not self.watch.sees():
            return
        kwargs, output = rest if len(rest) == 2 else ({}, None)  # torch gives no kwargs where forward raised
        while self._stack and self._stack.pop() is not module:
            pass  # calls that ended in an exception
        watch = self.watch
        if not watch.live or output is None:
            return
        watch.applied(module, output)
        if not self._stack and not isinstance(module, nn.modules.loss._Loss):
            watch.forward(Forward(module, args, kwargs, output, user_place(), torch.is_grad_enabled()))
