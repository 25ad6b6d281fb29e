# SPDX-License-Identifier: Apache-2.0
"""From a state to a checkpoint that can be written without looking at the state again.

Where the tensors of a state lie as they lay at the last save, so does everything that was worked out then: which of
them share memory, the files they go to, and the places in the buffers. A few may lie elsewhere, or have other shapes, as the
values have that were not logged yet: then only their files are laid out again.
"""

from collections import Counter
from operator import is_
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from truestep.checkpoints.checkpoint_commit import CheckpointFileImage
from truestep.checkpoints.concurrent_copy import SharedCopy
from truestep.checkpoints.file_layout import StateLayout, lay_out_files
from truestep.checkpoints.shared_memory_regions import tensor_regions_of_leaves, why_tensor_cannot_be_saved
from truestep.checkpoints.snapshot import CheckpointStagingBuffers, direct_image
from truestep.checkpoints.state_codec import (
    EncodedState,
    SavedTensorPiece,
    are_saved_integers,
    encode_saved_value,
    encode_state,
    state_children,
)
from truestep.core.garbage_collection import pause_garbage_collector

# Each is compared with all the others; beyond this the layout is made anew instead.
MOST_MOVED = 100  # tensors at another address than last time that are looked at one by one


class PreparedCheckpoint(NamedTuple):
    """A state that can be written: its layout, the files with its tensors, its tree, and what is still to be copied."""

    layout: StateLayout
    images: list[CheckpointFileImage]
    tree: Any
    copying: SharedCopy


class CheckpointPreparer:
    """Makes checkpoints to be written, one after another, of the states of one run.

    With buffers they hold a copy; without, the tensors themselves. Files are those of the process of this rank.
    """

    def __init__(self, buffers: CheckpointStagingBuffers | None, *, rank: int = 0) -> None:
        self._buffers, self._rank = buffers, rank
        self._last: _StateSavingPlan | None = None

    @property
    def copies(self) -> bool:
        """Whether what it makes outlives changes of the state."""
        return self._buffers is not None

    def prepared(self, state: Any, *, may_share: bool) -> PreparedCheckpoint:
        """Return what is to be written of a state; with `may_share` a first copy may be left to be shared with the writer.

        Raises CheckpointError with the path of whatever can't be saved.
        """
        with pause_garbage_collector():
            return self._plan_and_prepare(state, may_share=may_share)

    def _plan_and_prepare(self, state: Any, *, may_share: bool) -> PreparedCheckpoint:
        last, self._last = self._last, None  # what fails half way is no plan
        if last is not None:
            try:
                tree, tensors = last.tree_of(state)
            except SavedStateChangedError:
                pass
            else:
                self._last = last
                return self._prepare_by_plan(last, tensors, tree, may_share=may_share)
        encoded = encode_state(state)
        plan = _StateSavingPlan(
            state, encoded, StateLayout(lay_out_files(tensor_regions_of_leaves(encoded.leaves), self._rank))
        )
        tensors = [leaf.tensor for leaf in encoded.leaves]
        prepared = self._prepare_by_plan(plan, tensors, encoded.tree, may_share=may_share)
        if plan.make_reusable():
            self._last = plan
        return prepared

    def _prepare_by_plan(
        self, plan: "_StateSavingPlan", tensors: list[Tensor], tree: Any, *, may_share: bool
    ) -> PreparedCheckpoint:
        sources, copying = plan.sources(tensors), SharedCopy()
        if self._buffers is None:
            files = zip(plan.layout.files, sources, strict=True)
            images = [direct_image(file, source) for file, source in files]
        else:
            images = self._buffers.take(plan.layout.files, sources, copying, may_share=may_share)
        return PreparedCheckpoint(plan.layout, images, tree, copying)


class _StateSavingPlan:
    """What was worked out for a state, and where its tensors lay."""

    def __init__(self, state: Any, encoded: EncodedState, layout: StateLayout) -> None:
        self.layout = layout
        self._part = encoder_for_saved_node(state, encoded.tree)
        self._names = [leaf.name for leaf in encoded.leaves]
        self._divided = {number for number, leaf in enumerate(encoded.leaves) if leaf.piece is not None}
        tensors = [leaf.tensor for leaf in encoded.leaves]
        self._kinds = _layout_properties(tensors)
        self._addresses = np.array([tensor.data_ptr() for tensor in tensors], dtype=np.uint64)
        self._bytes = np.array([_extent_bytes(tensor) for tensor in tensors], dtype=np.uint64)
        self._num_leaves = Counter(leaf.node["tensor"] for leaf in encoded.leaves)
        rows = layout.rows
        for leaf in encoded.leaves:
            # A number is shorter than a name; what lies in no file of this process keeps its name.
            name = leaf.node["tensor"]
            leaf.node["tensor"] = rows.get(name, name)
        self._order: list[list[int]] | None = None

    def tree_of(self, state: Any) -> tuple[Any, list[Tensor]]:
        """Return the tree of a state, and its tensors; raises ChangedError unless nearly all lie as they lay."""
        tensors: list[Tensor] = []
        tree = self._part.node(state, tensors)
        kinds = _layout_properties(tensors)
        reshaped = self._reshaped_tensor_numbers(tensors, kinds) if kinds != self._kinds else set()
        addresses = np.fromiter(map(Tensor.data_ptr, tensors), np.uint64, len(tensors))
        moved = reshaped.union(np.flatnonzero(addresses != self._addresses).tolist())
        if len(moved) > MOST_MOVED:
            raise SavedStateChangedError
        sizes = self._bytes.copy()
        for number in reshaped:
            sizes[number] = _extent_bytes(tensors[number])
        ends = addresses + sizes
        for number in moved:  # made anew, as the states of generators are: it may share memory with no other
            touching = (addresses < ends[number]) & (ends > addresses[number])
            if self._num_leaves[self._names[number]] != 1 or int(touching.sum()) > 1:
                raise SavedStateChangedError
        # They are known by their new places and shapes from now on; all checks are behind us.
        self._kinds, self._addresses, self._bytes = kinds, addresses, sizes
        if reshaped:
            self._lay_out_reshaped(reshaped, tensors)
        return tree, tensors

    def _reshaped_tensor_numbers(self, tensors: list[Tensor], kinds: list[tuple[Any, ...]]) -> set[int]:
        """Return the numbers of tensors that differ in shape or order alone; raises ChangedError where more does."""
        found = set()
        for number, (kind, before) in enumerate(zip(kinds, self._kinds, strict=True)):
            if kind != before:
                if kind[2:] != before[2:] or kind[-1] or number in self._divided:
                    raise SavedStateChangedError
                if why_tensor_cannot_be_saved(tensors[number]):  # said where all is made anew
                    raise SavedStateChangedError
                found.add(number)
        return found

    def _lay_out_reshaped(self, reshaped: set[int], tensors: list[Tensor]) -> None:
        """Lay out the files of tensors that have other shapes; the rows stay, since dtypes and names do."""
        assert self._order is not None
        self.layout = StateLayout(
            [
                file
                if reshaped.isdisjoint(order)
                else file.relaid_for_tensors([tensors[number] for number in order])
                for file, order in zip(self.layout.files, self._order, strict=True)
            ]
        )

    def make_reusable(self) -> bool:
        """Note which tensor each region is, if each is one as it lies, and let go of the tensors themselves."""
        regions = [item.region for file in self.layout.files for item in file.placed]
        if any(region.joint for region in regions) or any(kind[-1] for kind in self._kinds):
            return False
        numbers = {name: number for number, name in enumerate(self._names)}
        self._order = [[numbers[item.region.name] for item in file.placed] for file in self.layout.files]
        for region in regions:
            region.tensor = None
        return True

    def sources(self, tensors: list[Tensor]) -> list[list[Tensor]]:
        """Return the tensors that go into each file, in the order of their places."""
        if self._order is not None:
            return [[tensors[number] for number in order] for order in self._order]
        return [
            [item.region.tensor for item in file.placed if item.region.tensor is not None]
            for file in self.layout.files
        ]


def _layout_properties(tensors: list[Tensor]) -> list[tuple[Any, ...]]:
    """Return what a layout depends on besides addresses; the last says whether a tensor is to be read as a conjugate."""
    return [
        (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.is_conj() or tensor.is_neg())
        if tensor.layout is torch.strided
        else (None, True)  # refused in words elsewhere
        for tensor in tensors
    ]


def _extent_bytes(tensor: Tensor) -> int:
    """Return how many bytes lie between the first and the last element, both included."""
    if tensor.numel() == 0 or tensor.is_contiguous():
        return tensor.nbytes
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((length - 1) * step for length, step in steps)) * tensor.element_size()


# A run saves the same tree again and again, with other values. Names, paths and nodes of tensors need not be made anew for that:
# the state is walked beside its last tree, and only plain values that changed make new nodes.


class SavedStateChangedError(Exception):
    """The state is no longer built as it was."""


class _NodeEncoder(Protocol):
    def node(self, value: Any, tensors: list[Tensor]) -> Any: ...


class _TensorEncoder:
    def __init__(self, node: Any) -> None:
        self._node = node

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        # Subclasses are refused in words by `encode`, so the exact types alone may pass.
        if type(value) is not Tensor and type(value) is not torch.nn.Parameter:
            raise SavedStateChangedError
        tensors.append(value)
        return self._node


class _TensorPieceEncoder:
    def __init__(self, value: SavedTensorPiece, node: Any) -> None:
        self._place, self._node = (value.whole, value.offset), node

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        if not isinstance(value, SavedTensorPiece) or (value.whole, value.offset) != self._place:
            raise SavedStateChangedError
        tensors.append(value.tensor)
        return self._node


class _PlainValueEncoder:
    def __init__(self, value: Any, node: Any, path: tuple[Any, ...]) -> None:
        self._value, self._node, self._path = value, node, path

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        # Identity, not equality: 1 is equal to True and to 1.0, which have other nodes.
        if value is self._value:
            return self._node
        if isinstance(value, dict | list | tuple | Tensor | SavedTensorPiece):
            raise SavedStateChangedError
        self._value, self._node = value, encode_saved_value(value, self._path)
        return self._node


class _DictEncoder:
    def __init__(self, value: dict[Any, Any], node: dict[str, Any], path: tuple[Any, ...]) -> None:
        ((self._tag, self._content),) = node.items()
        self._type, self._keys, self._node = type(value), list(value), node
        nodes = self._content.values() if self._tag == "dict" else [child for _, child in self._content]
        self._nodes, self._key_types = list(nodes), list(map(type, value))
        self._parts = [
            encoder_for_saved_node(item, child, (*path, key))
            for (key, item), child in zip(value.items(), self._nodes, strict=True)
        ]

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        # The order of keys counts: it is the order of the tensors.
        if type(value) is not self._type or list(value) != self._keys:
            raise SavedStateChangedError
        if self._tag != "dict" and list(map(type, value)) != self._key_types:  # True is equal to 1
            raise SavedStateChangedError
        nodes = [part.node(item, tensors) for part, item in zip(self._parts, value.values(), strict=True)]
        if not all(map(is_, nodes, self._nodes)):
            self._nodes = nodes
            if self._tag == "dict":
                self._node = {"dict": dict(zip(self._keys, nodes, strict=True))}
            else:
                keys = [key for key, _ in self._content]
                self._node = {self._tag: [list(pair) for pair in zip(keys, nodes, strict=True)]}
        return self._node


class _ListEncoder:
    def __init__(self, value: Any, node: Any, path: tuple[Any, ...]) -> None:
        self._type, self._node = type(value), node
        self._nodes = list(node) if isinstance(node, list) else list(node["tuple"])
        self._parts = [
            encoder_for_saved_node(item, child, (*path, index))
            for index, (item, child) in enumerate(zip(value, self._nodes, strict=True))
        ]

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        if type(value) is not self._type or len(value) != len(self._parts):
            raise SavedStateChangedError
        nodes = [part.node(item, tensors) for part, item in zip(self._parts, value, strict=True)]
        if not all(map(is_, nodes, self._nodes)):
            self._nodes = nodes
            self._node = nodes if self._type is list else {"tuple": nodes}
        return self._node


class _IntegerListEncoder:
    def __init__(self, value: Any, node: Any) -> None:
        self._type, self._integers, self._node = type(value), list(value), node

    def node(self, value: Any, tensors: list[Tensor]) -> Any:
        if type(value) is not self._type or not are_saved_integers(value):
            raise SavedStateChangedError
        integers = list(value)
        if integers != self._integers:
            self._integers = integers
            self._node = integers if self._type is list else {"tuple": integers}
        return self._node


def encoder_for_saved_node(value: Any, node: Any, path: tuple[Any, ...] = ()) -> _NodeEncoder:
    """Return what encodes values like `value`, which was encoded as `node`, again."""
    if isinstance(value, Tensor):
        return _TensorEncoder(node)
    if isinstance(value, SavedTensorPiece):
        return _TensorPieceEncoder(value, node)
    if isinstance(value, list | tuple) and are_saved_integers(value):
        return _IntegerListEncoder(value, node)
    if state_children(node) is None:
        return _PlainValueEncoder(value, node, path)
    return _DictEncoder(value, node, path) if isinstance(value, dict) else _ListEncoder(value, node, path)
