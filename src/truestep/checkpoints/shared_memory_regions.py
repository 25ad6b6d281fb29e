# SPDX-License-Identifier: Apache-2.0
"""Which bytes of memory a state's tensors are, so that what they share is saved once and shared again."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from truestep.checkpoints.dtype_encoding import DTYPES, MAX_DIMENSIONS, is_dense_in_checkpoint
from truestep.checkpoints.state_codec import SavedTensorLeaf, SavedTensorPiece
from truestep.core.errors import CheckpointError
from truestep.core.text_formatting import a_type


@dataclass(kw_only=True)
class TensorRegion:
    """One tensor to be written: a leaf of the state, or (`joint`) the memory that several leaves overlap in.

    `stride` is what is to be restored: of a dense tensor in another order than usual (channels last), else None. `piece` says
    where it lies in a whole that is divided among processes.
    """

    name: str
    tensor: Tensor | None
    dtype: str
    torch_dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    byte_count: int
    joint: bool = False
    piece: SavedTensorPiece | None = None

    @classmethod
    def of(
        cls, name: str, tensor: Tensor, *, joint: bool = False, piece: SavedTensorPiece | None = None
    ) -> "TensorRegion":
        """Return the region that a tensor is."""
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        usual = tensor.is_contiguous() or tensor.numel() == 0 or not is_dense_in_checkpoint(shape, stride)
        usual = usual or piece is not None  # the strides of a piece are not those of the whole
        return cls(
            name=name,
            tensor=tensor,
            dtype=saved_dtype_name(tensor),
            torch_dtype=tensor.dtype,
            shape=shape,
            stride=None if usual else stride,
            byte_count=tensor.numel() * tensor.element_size(),
            joint=joint,
            piece=piece,
        )

    @property
    def is_empty_here(self) -> bool:
        """Whether this process has nothing of it to write: others have all of it."""
        return self.piece is not None and not self.byte_count and 0 not in self.piece.whole


@dataclass(frozen=True)
class _StorageExtent:
    """The bytes of a storage between the first and the last element of a leaf."""

    order: int
    leaf: SavedTensorLeaf
    tensor: Tensor
    storage: tuple[str, int]
    begin: int
    end: int


def tensor_regions_of_leaves(leaves: list[SavedTensorLeaf]) -> list[TensorRegion]:
    """Return what must be written for these leaves, and note in their nodes where each is found.

    Leaves that are the same view are one region under the first one's name. Leaves that overlap otherwise
    become views (shape, stride, offset) of one flat region. Leaves side by side in one storage stay apart.
    """
    extents = [_storage_extent_of_leaf(order, leaf) for order, leaf in enumerate(leaves)]
    found = [pair for group in _overlapping_groups(extents) for pair in _regions_of_group(group)]
    return [region for _, region in sorted(found, key=lambda pair: pair[0])]


def _storage_extent_of_leaf(order: int, leaf: SavedTensorLeaf) -> _StorageExtent:
    tensor = _saveable_tensor(leaf)
    begin = int(tensor.storage_offset()) * tensor.element_size()
    size = tensor.element_size()
    elements = tensor.numel()
    if not tensor.is_contiguous():
        elements = 1 + sum(
            (length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True)
        )
    storage = tensor.untyped_storage().data_ptr()
    device = "" if tensor.is_cpu else str(tensor.device)
    if tensor.numel() == 0 or storage == 0:  # shares nothing
        # a key of its own: no address is negative
        return _StorageExtent(order, leaf, tensor, (device, -1 - order), 0, 0)
    return _StorageExtent(order, leaf, tensor, (device, storage), begin, begin + elements * size)


def why_tensor_cannot_be_saved(tensor: Tensor) -> str | None:
    """Return why a tensor can't be saved, and what to save instead; None where it can."""
    if is_lazy(tensor):
        return "has no shape yet, since its layer was never called; call the module once with a batch before"
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        return f"is {a_type(tensor)}; save a plain tensor (of a DTensor: tensor.full_tensor())"
    if tensor.is_nested:
        return "is a nested tensor; save its parts, tensor.unbind()"
    if tensor.is_quantized:
        return f"is quantized ({tensor.dtype}); save tensor.int_repr() beside its scale and zero point, or tensor.dequantize()"
    if tensor.layout != torch.strided:
        return f"has the layout {tensor.layout}; save its parts (of a sparse one: indices and values)"
    if tensor.is_meta:
        return "is on the meta device and has no values; materialise it first"
    if tensor.dim() > MAX_DIMENSIONS:
        return f"has {tensor.dim()} dimensions, and torch copies none of more than {MAX_DIMENSIONS}; save tensor.flatten()"
    if saved_dtype_name(tensor) not in DTYPES:
        return f"has the dtype {tensor.dtype}, which no safetensors file can hold; convert it"
    return None


def _saveable_tensor(leaf: SavedTensorLeaf) -> Tensor:
    tensor: Tensor = leaf.tensor
    if problem := why_tensor_cannot_be_saved(tensor):
        raise CheckpointError(f"The tensor at {leaf.name!r} can't be saved: it {problem}.")
    return resolve_conj_and_neg(tensor)


def resolve_conj_and_neg(tensor: Tensor) -> Tensor:
    """Return a tensor whose memory holds the numbers that it shows: torch conjugates and negates views lazily."""
    return tensor.detach().resolve_conj().resolve_neg()


def saved_dtype_name(tensor: Tensor) -> str:
    """Return a tensor's dtype as the manifest writes it: float32."""
    return str(tensor.dtype).removeprefix("torch.")


def _overlapping_groups(extents: Iterable[_StorageExtent]) -> Iterator[list[_StorageExtent]]:
    """Yield the groups of extents that touch the same bytes, directly or through others."""

    ordered = sorted(extents, key=lambda extent: (extent.storage, extent.begin, extent.order))
    for _, same_storage in groupby(ordered, key=lambda extent: extent.storage):
        group: list[_StorageExtent] = []
        end = 0
        # Sorted by where they begin, extents overlap what came before exactly if they begin before its furthest end.
        for extent in same_storage:
            if group and extent.begin >= end:
                yield group
                group = []
            group.append(extent)
            end = max(end, extent.end)
        yield group


def _regions_of_group(group: list[_StorageExtent]) -> list[tuple[int, TensorRegion]]:
    if len(group) == 1:
        return [_region_of_same_view(group)]
    views = {_tensor_view_key(extent) for extent in group}
    if len(views) == 1 and len({extent.begin for extent in group}) == 1:
        return [_region_of_same_view(group)]
    if len({extent.tensor.dtype for extent in group}) > 1 or any(extent.leaf.piece for extent in group):
        # the same memory seen as two dtypes, or pieces of two wholes: the values are kept, the tie is not
        return [_region_of_same_view([extent]) for extent in group]
    return [_region_of_joint_memory(group)]


def _tensor_view_key(extent: _StorageExtent) -> tuple[Any, ...]:
    piece = extent.leaf.piece
    place = piece and (piece.whole, piece.offset)
    return extent.tensor.dtype, extent.tensor.shape, extent.tensor.stride(), place


def _region_of_same_view(group: list[_StorageExtent]) -> tuple[int, TensorRegion]:
    first = min(group, key=lambda extent: extent.order)
    for extent in group:
        extent.leaf.node["tensor"] = first.leaf.name
    return first.order, TensorRegion.of(first.leaf.name, first.tensor, piece=first.leaf.piece)


def _region_of_joint_memory(group: list[_StorageExtent]) -> tuple[int, TensorRegion]:
    first = min(group, key=lambda extent: extent.order)
    size = first.tensor.element_size()
    begin, end = (min(extent.begin for extent in group) // size, max(extent.end for extent in group) // size)
    for extent in group:
        extent.leaf.node.update(
            tensor=first.leaf.name,
            shape=list(extent.tensor.shape),
            stride=list(extent.tensor.stride()),
            offset=extent.begin // size - begin,
        )
    # The offset counts from the beginning of the storage, not of the tensor.
    flat = first.tensor.as_strided((end - begin,), (1,), begin)
    return first.order, TensorRegion.of(first.leaf.name, flat, joint=True)
