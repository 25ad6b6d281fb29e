# SPDX-License-Identifier: Apache-2.0
"""The tensors that Python can see, counted by storage: views share theirs, and count once."""

import gc
import sys
import warnings
from collections.abc import Sequence
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


class LiveStorages:
    """Every storage in reach of Python's garbage collector, largest first, with its tensors."""

    def __init__(self, among: Sequence[Any] | None = None) -> None:
        """Count all visible tensors, or those among some and their gradients."""
        self.tensors: dict[int, list[Any]] = {}
        self.storages: dict[int, Any] = {}
        self.owners: dict[int, Any] = {}  # id of a gradient's tensor → the tensor whose .grad it is
        found = live_tensors() if among is None else list(among)
        for tensor in found:
            self._count_storage(tensor)
        for gradient in self._gradients_not_found_yet(found):
            self._count_storage(gradient)

    def _gradients_not_found_yet(self, found: list[Any]) -> list[Any]:
        """Return the gradients of tensors, except those that were found themselves."""
        seen = {id(item) for item in found}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pairs = ((_leaf_gradient(tensor), tensor) for tensor in found)
            self.owners = {id(gradient): tensor for gradient, tensor in pairs if gradient is not None}
            return [tensor.grad for owned, tensor in self.owners.items() if owned not in seen]

    def _count_storage(self, tensor: Any) -> None:
        # sparse, fake, wrapper and uninitialised (lazy) tensors have no storage, or none that can be asked
        with suppress(RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
            storage = tensor.untyped_storage()
            if storage.device.type != "meta" and storage.nbytes():
                # by the address of C++'s object: Python may make another storage object each time it is asked
                self.storages.setdefault(storage._cdata, storage)
                self.tensors.setdefault(storage._cdata, []).append(tensor)

    def largest(self) -> list[int]:
        """Return the storages' keys, most bytes first."""
        return sorted(self.storages, key=lambda key: -self.storages[key].nbytes())

    def bytes_on(self, device: str) -> int:
        """Return the bytes of all storages on a device."""
        return sum(storage.nbytes() for storage in self.storages.values() if str(storage.device) == device)


def live_tensors() -> list[Any]:
    """Return every tensor in reach of Python's garbage collector."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return []
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, torch.Tensor)}
    return [item for item in objects if type(item) in kinds]  # isinstance() would run the code of proxies


def _leaf_gradient(tensor: Any) -> Any:
    try:
        return tensor.grad if tensor.is_leaf else None  # reading .grad of others warns
    except (RuntimeError, NotImplementedError):
        return None


def describe_storage(tensors: list[Any], storage: Any, held_by: tuple[str, ...]) -> LiveTensor:
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
