# SPDX-License-Identifier: Apache-2.0
"""Hooks on every module call, while the watch looks closely; none at all at other times."""

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from truestep.doctor.watcher import Forward
from truestep.doctor.watching.frames import user_place

if TYPE_CHECKING:
    from truestep.doctor.watch import Watch


class LayerHooks:
    """Tells the watch of each module call, and which of them the user's code made itself."""

    def __init__(self, watch: "Watch") -> None:
        self.watch = watch
        self._handles: list[Any] = []
        self._stack: list[nn.Module] = []
        self._thread = 0

    def attach(self) -> None:
        """Begin; a compiled model is left alone."""
        if self._handles or self.watch.scene.compiled:
            return
        self._thread = threading.get_ident()
        self._stack.clear()
        self._handles = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, with_kwargs=True, always_call=True),
        ]

    def detach(self) -> None:
        """End."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before(self, module: nn.Module, _args: Any) -> None:
        if threading.get_ident() == self._thread and not torch.compiler.is_compiling():
            self._stack.append(module)

    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if threading.get_ident() != self._thread or torch.compiler.is_compiling():
            return
        while self._stack and self._stack.pop() is not module:
            pass  # calls that ended in an exception
        watch = self.watch
        if not watch.live or watch.inside or output is None:
            return
        with watch.timed():
            watch.tell("on_layer", module, output)
            if not self._stack and not isinstance(module, nn.modules.loss._Loss):
                place = user_place()
                watch.forward(Forward(module, args, kwargs, output, place, torch.is_grad_enabled()))
