# SPDX-License-Identifier: Apache-2.0
"""A model within a sealed child, to try things on: nothing that is done to it leaves that process."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.runtime.operations import without_watching_modes


class ProbedModel:
    """Applies a module, in eval mode, to the inputs of a forward of the user's.

    Only for a sealed child (`truestep.doctor.forks`): the module itself is applied, with whatever its code holds and does.
    """

    def __init__(self, forward: ForwardCall) -> None:
        self.forward = forward
        self.module = forward.module
        self._stack = contextlib.ExitStack()
        self._states: list[_ModuleState] = []

    def __enter__(self) -> Self:
        if any(each.is_meta for each in (*self.module.parameters(), *self.module.buffers())):
            raise RuntimeError("the model is on the meta device, where tensors hold no numbers")
        self._stack.enter_context(_silenced_output())
        self._stack.enter_context(without_watching_modes())
        # a watch's own computing passes no mode; the model's does: the default device's, and what follows operations
        self._stack.enter_context(torch._C._EnableTorchFunction())
        self._stack.enter_context(torch.no_grad())
        self.module.eval()
        self._states = [_ModuleState(each) for each in self.module.modules()]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def put_back(self) -> None:
        """Let the next application start from what the first one did: some models carry a state from batch to batch."""
        for state in self._states:
            state.put_back()

    def apply(self, changed: Mapping[int | str, Tensor] | None = None) -> Any:
        """Return the module's output, with other tensors for some inputs, by position or name."""
        changed = changed or {}
        args = [changed.get(index, each) for index, each in enumerate(self.forward.args)]
        kwargs = {name: changed.get(name, each) for name, each in self.forward.kwargs.items()}
        return self.module(*args, **kwargs)


class _ModuleState:
    """What a module's attributes and buffers hold at a moment."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._attributes, self._buffers = dict(module.__dict__), dict(module._buffers)
        held = [*self._attributes.values(), *self._buffers.values()]
        tensors = [each for each in held if isinstance(each, Tensor) and not each.is_inference()]
        self._tensors = [(each, each.clone(), each._version) for each in tensors]

    def put_back(self) -> None:
        """Give the module the same objects again, with the same numbers."""
        for tensor, numbers, version in self._tensors:
            if tensor._version != version:
                tensor.copy_(numbers)
        self._module.__dict__.clear()
        self._module.__dict__.update(self._attributes)
        self._module._buffers.clear()
        self._module._buffers.update(self._buffers)


@contextlib.contextmanager
def _silenced_output() -> Iterator[None]:
    """Let nothing be printed, logged or warned of, where a stream of the program's lies in memory or raises on warnings."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        logging.disable()
        warnings.simplefilter("ignore")
        yield
