# SPDX-License-Identifier: Apache-2.0
"""Which memory lives while a piece of code runs."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class ModelLivingMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all storages that operations give, for as long as they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def note(self, tensors: Iterable[Any]) -> None:
        """Count storages that are not counted yet."""
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            if storage not in self._known:
                self._known.add(storage)
                size = storage.nbytes()
                self.now += size
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._forget, size).atexit = False

    def _forget(self, size: int) -> None:
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.note(pytree.tree_leaves(result))
        return result
