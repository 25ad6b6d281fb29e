# SPDX-License-Identifier: Apache-2.0
"""A copy of a model to try things on, which leaves no trace in the run."""

import contextlib
import copy
import io
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MethodType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.runtime.operations import without_watching_modes

MOST_BYTES = 1 << 30  # a larger model is not copied: there may be no room for it


class ProbeModelCopy:
    """Applies a copy of a module, in eval mode, to the inputs of a forward of the user's.

    Random streams (also generators that the module or the file of its class holds) and the module itself are
    afterwards as they were before; what it prints, logs or warns of meanwhile is not shown.

    Raises:
        RuntimeError: on entering or applying, where a copy could disturb the run; the message says why.
    """

    def __init__(self, forward: ForwardCall) -> None:
        self.forward = forward
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        _check_harmless(self.forward.module)
        states = random.getstate(), np.random.get_state()
        self._stack.callback(random.setstate, states[0])
        self._stack.callback(np.random.set_state, states[1])
        for restore in _generators_kept(self.forward.module):
            self._stack.callback(restore)
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        self._stack.enter_context(torch.random.fork_rng(devices))
        self._stack.enter_context(_silence())
        self._stack.enter_context(without_watching_modes())
        # a watch's own computing passes no mode; the copy's does: the default device's, and what follows operations
        self._stack.enter_context(torch._C._EnableTorchFunction())
        self._stack.enter_context(torch.no_grad())
        try:
            self.copy = copy.deepcopy(self.forward.module)
            self.copy.eval()
            _drop_users_hooks(self.copy)
            self._stack.callback(_within(self.copy).remove)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def apply(self, changed: Mapping[int | str, Tensor] | None = None) -> Any:
        """Return the copy's output, with other tensors for some inputs, by position or name."""
        changed = changed or {}
        args = [changed.get(index, each) for index, each in enumerate(self.forward.args)]
        kwargs = {name: changed.get(name, each) for name, each in self.forward.kwargs.items()}
        return self.copy(*args, **kwargs)


def _check_harmless(module: nn.Module) -> None:
    size = sum(each.nbytes for each in (*module.parameters(), *module.buffers()))
    if size > MOST_BYTES:
        raise RuntimeError(f"the model has {size / 1e9:.1f} GB, and a copy might not fit beside it")
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise RuntimeError("several processes train together, and a copy might wait for the others")
    if any(each.is_meta for each in (*module.parameters(), *module.buffers())):
        raise RuntimeError("the model is on the meta device, where tensors hold no numbers")
    if any(_is_replaced(part) for part in module.modules()):
        raise RuntimeError("a forward was replaced by a function, which a copy would share with the model")


def _is_replaced(part: nn.Module) -> bool:
    forward = vars(part).get("forward")
    return forward is not None and not (isinstance(forward, MethodType) and forward.__self__ is part)


def _within(copied: nn.Module) -> RemovableHandle:
    """Refuse every module that the copy applies and does not hold: it is the run's own, and may keep statistics."""
    held = {id(part) for part in copied.modules()}

    def before(module: nn.Module, _args: Any) -> None:
        if id(module) not in held and [*module.parameters(), *module.buffers()]:
            raise RuntimeError(f"the model applies a {type(module).__name__} that is no part of it")

    return register_module_forward_pre_hook(before)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Let nothing be printed, logged or warned of; the registers of warnings already given stay as they are."""
    disabled, show = logging.root.manager.disable, warnings.showwarning
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        logging.disable()
        warnings.showwarning = lambda *_args, **_options: None
        try:
            yield
        finally:
            warnings.showwarning = show
            logging.disable(disabled)


def _generators_kept(module: nn.Module) -> Iterator[Callable[[], object]]:
    """Yield what puts each generator back that the module's code could draw from, past the global streams."""
    seen: set[int] = set()
    for part in module.modules():
        names = getattr(type(part).forward, "__globals__", {}) if not _is_torchs(part) else {}
        for value in [*vars(part).values(), *vars(type(part)).values(), *names.values()]:
            restore = None if id(value) in seen else _restoring(value)
            seen.add(id(value))
            if restore is not None:
                yield restore


def _drop_users_hooks(module: nn.Module) -> None:
    """Leave the copy torch's own hooks (a norm of the weights): the user's may collect what passes."""
    for part in module.modules():
        for hooks in (part._forward_hooks, part._forward_pre_hooks):
            for key, hook in list(hooks.items()):
                home = getattr(hook, "__module__", None) or type(hook).__module__
                if not home.startswith("torch."):
                    del hooks[key]


def _is_torchs(part: nn.Module) -> bool:
    return type(part).__module__.startswith("torch.")


def _restoring(value: Any) -> Callable[[], object] | None:
    if isinstance(value, torch.Generator):
        kept = value.get_state()
        return lambda: value.set_state(kept)
    if isinstance(value, random.Random):
        state = value.getstate()
        return lambda: value.setstate(state)
    if isinstance(value, np.random.Generator | np.random.RandomState):
        source = value.bit_generator if isinstance(value, np.random.Generator) else value._bit_generator
        before = copy.deepcopy(source.state)
        return lambda: setattr(source, "state", before)
    return None
