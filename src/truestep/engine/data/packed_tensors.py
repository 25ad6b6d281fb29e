# SPDX-License-Identifier: Apache-2.0
"""Many tensors on their way from a worker, as one: torch opens a file for each that is sent, and a process may open few."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

MANY = 16  # below, each travels as it is, without a copy
_ALIGNED = 16  # bytes: of the largest element, complex128


class _PackedTensor(NamedTuple):
    """Where a tensor lies in its parcel."""

    start: int
    num_bytes: int
    dtype: torch.dtype
    shape: torch.Size


class PackedBatch(NamedTuple):
    """A batch whose tensors lie in one, with the place of each where it was."""

    batch: Any
    memory: Tensor


def pack_batch(batch: Any) -> Any:
    """Return a batch of many tensors, in lists, tuples (named ones, too) and dicts, as a parcel; any other as it is."""
    tensors: dict[int, Tensor] = {}
    _collect_tensors([batch], tensors)
    if len(tensors) < MANY or _has_shared_elements([*tensors.values()]):
        return batch
    places, end = {}, 0
    for key, each in tensors.items():
        places[key] = _PackedTensor(end, each.nbytes, each.dtype, each.shape)
        end += -(-each.nbytes // _ALIGNED) * _ALIGNED
    memory = torch.empty(end, dtype=torch.uint8)
    for key, each in tensors.items():
        _unpack_tensor(memory, places[key]).copy_(each)
    return PackedBatch(_map_containers(batch, lambda leaf: places.get(id(leaf), leaf)), memory)


def unpack_batch(parcel: PackedBatch) -> Any:
    """Return the batch that was packed; a tensor that stood in it twice is one again."""
    made: dict[_PackedTensor, Tensor] = {}

    def unpack_leaf(leaf: Any) -> Any:
        if type(leaf) is not _PackedTensor:
            return leaf
        if leaf not in made:
            made[leaf] = _unpack_tensor(parcel.memory, leaf).clone()
        return made[leaf]

    return _map_containers(parcel.batch, unpack_leaf)


def _collect_tensors(parts: Iterable[Any], tensors: dict[int, Tensor]) -> None:
    """Collect the tensors that can be packed, by identity."""
    for part in parts:
        kind = type(part)
        if kind is Tensor:
            if _is_plain_tensor(part):
                tensors[id(part)] = part
        elif kind is list or kind is tuple or _is_named_tuple(kind):
            _collect_tensors(part, tensors)
        elif kind is dict:
            _collect_tensors(part.values(), tensors)


def _unpack_tensor(memory: Tensor, place: _PackedTensor) -> Tensor:
    return memory[place.start : place.start + place.num_bytes].view(place.dtype).view(place.shape)


def _is_plain_tensor(leaf: Tensor) -> bool:
    """Whether a tensor is its elements, one after another, and nothing else."""
    return (
        leaf.is_cpu
        and leaf.layout is torch.strided
        and leaf.is_contiguous()
        and leaf.nbytes > 0
        and not (leaf.requires_grad or leaf.is_quantized or leaf.is_conj() or leaf.is_neg())
    )


def _has_shared_elements(tensors: list[Tensor]) -> bool:
    """Whether some share elements, as they are to do where they arrive."""
    found = sorted((each.data_ptr(), each.nbytes) for each in tensors)
    return any(begin + size > after for (begin, size), (after, _) in itertools.pairwise(found))


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and kind.__bases__ == (tuple,) and hasattr(kind, "_fields")


def _map_containers(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Apply to what stands in plain lists, tuples and dicts; whatever else there is is changed whole."""
    kind = type(batch)
    if kind is list or kind is tuple:
        return kind(_map_containers(each, change) for each in batch)
    if _is_named_tuple(kind) and kind is not _PackedTensor:
        return kind._make(_map_containers(each, change) for each in batch)
    if kind is dict:
        return {name: _map_containers(each, change) for name, each in batch.items()}
    return change(batch)
