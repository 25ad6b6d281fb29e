# SPDX-License-Identifier: Apache-2.0
"""The tensors that Python can see, counted by storage: views share theirs, and count once."""

import gc
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class LiveTensor:
    """A storage that is alive, described by its largest tensor, with what holds it."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    storage_bytes: int
    num_tensors: int  # tensors that Python sees on this storage
    requires_grad: bool
    keeps_graph: bool  # it is a result of autograd: the graph behind it is alive too
    held_by: tuple[str, ...]


class Storages:
    """Every storage in reach of Python's garbage collector, largest first, with its tensors."""

    def __init__(self) -> None:
        self.tensors: dict[int, list[Any]] = {}
        self.storages: dict[int, Any] = {}
        self.owners: dict[int, Any] = {}  # id of a gradient's tensor → the tensor whose .grad it is
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "Tensor"):
            for tensor in self._visible(torch.Tensor):
                self._add(tensor)

    def _visible(self, kind: type) -> Iterator[Any]:
        # `type(x)`, as isinstance() would run the code of proxies
        found = [item for item in gc.get_objects() if issubclass(type(item), kind)]
        yield from found
        seen = {id(item) for item in found}
        for tensor in found:
            gradient = _gradient(tensor)
            if gradient is not None:
                self.owners[id(gradient)] = tensor
                if id(gradient) not in seen:
                    yield gradient

    def _add(self, tensor: Any) -> None:
        # sparse, fake, wrapper and uninitialised (lazy) tensors have no storage, or none that can be asked
        with suppress(RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
            storage = tensor.untyped_storage()
            if storage.device.type != "meta" and storage.nbytes():
                self.storages.setdefault(storage._cdata, storage)
                self.tensors.setdefault(storage._cdata, []).append(tensor)

    def largest(self) -> list[int]:
        """Return the storages' keys, most bytes first."""
        return sorted(self.storages, key=lambda key: -self.storages[key].nbytes())

    def bytes_on(self, device: str) -> int:
        """Return the bytes of all storages on a device."""
        return sum(storage.nbytes() for storage in self.storages.values() if str(storage.device) == device)


def _gradient(tensor: Any) -> Any:
    try:
        if not tensor.is_leaf:  # reading .grad of others warns
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tensor.grad
    except (RuntimeError, NotImplementedError):
        return None


def describe(tensors: list[Any], storage: Any, held_by: tuple[str, ...]) -> LiveTensor:
    """Return the record of one storage."""
    main = max(tensors, key=lambda tensor: tensor.numel())
    return LiveTensor(
        shape=tuple(main.shape),
        dtype=str(main.dtype).removeprefix("torch."),
        device=str(storage.device),
        storage_bytes=storage.nbytes(),
        num_tensors=len(tensors),
        requires_grad=any(tensor.requires_grad for tensor in tensors),
        keeps_graph=any(tensor.grad_fn is not None for tensor in tensors),
        held_by=held_by,
    )
