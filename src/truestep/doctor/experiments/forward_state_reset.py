# SPDX-License-Identifier: Apache-2.0
"""Lets each forward of a child start from the state that modules had at its fork: what another forward left there is put back."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle


class PreservedModuleState:
    """Within it modules keep their buffers and tensors, whatever their forwards put in the place of them.

    What a forward left can be read up to the module's next one, as a loss may; what is set from outside stays.

    Args:
        modules: those that keep them.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._kept = {id(each): {**vars(each), **each._buffers} for each in modules}
        self._left: dict[int, dict[str, Any]] = {}  # by the last forward of each, where it is another object
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        self._handles = [
            register_module_forward_pre_hook(self._restore_before_forward),
            register_module_forward_hook(self._note_after_forward),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in self._handles:
            each.remove()

    def _restore_before_forward(self, module: nn.Module, _args: Any) -> None:
        for name, left in self._left.pop(id(module), {}).items():
            home = module._buffers if name in module._buffers else module.__dict__
            if home.get(name) is left:
                del home[name]
                kept = self._kept[id(module)]
                home.update({key: kept[key] for key in kept.keys() & {name}})

    def _note_after_forward(self, module: nn.Module, _args: Any, _output: Any) -> None:
        kept = self._kept.get(id(module))
        if kept is not None:
            state = _buffers_and_tensors(module).items()
            self._left[id(module)] = {name: each for name, each in state if each is not kept.get(name)}


def _buffers_and_tensors(module: nn.Module) -> dict[str, Any]:
    """Return the buffers of a module, and its attributes that hold tensors."""
    own = {name: each for name, each in vars(module).items() if _holds_tensors(each)}
    return {**own, **module._buffers}


def _holds_tensors(value: Any) -> bool:
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return bool(parts) and all(isinstance(each, Tensor) for each in parts)
