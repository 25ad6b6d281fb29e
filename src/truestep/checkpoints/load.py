# SPDX-License-Identifier: Apache-2.0
"""From files back to a state: each file is read once, hashed on its way into memory of its own.

Nothing is mapped: a file that shrinks under a mapping kills the process by SIGBUS, here it is a short read.
"""

import math
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truestep.checkpoints.checksum import Checksum
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.manifest import Manifest, ManifestTensor, TensorShard
from truestep.checkpoints.state_codec import decode_state, saved_tensor_nodes, state_subtree
from truestep.checkpoints.tensor_memory_view import tensor_memoryview
from truestep.checkpoints.tensor_selection import PartOf, RequestedTensorBox, TensorBox
from truestep.checkpoints.verify import check_manifest_structure, read_and_discard, read_file_and_verify
from truestep.core.garbage_collection import pause_garbage_collector

SMALL_BYTES = 16 << 10  # below this tensors are read together, where many lie in a row
LEAST_TOGETHER = 32  # for fewer it is not worth to wait until they are read
MOST_TOGETHER = 1024  # of them: 16 MiB at the most


def load_state(
    files: CheckpointFiles,
    folder: Path,
    manifest: Manifest,
    under: tuple[str | int, ...] = (),
    part_of: PartOf | None = None,
) -> Any:
    """Return the state of a checkpoint, or what it has under a path, on the CPU.

    Of a tensor that `part_of` wants a part of, that part alone is kept, as what the part makes of it. Only the files that hold
    some of all that are read, each from end to end. Raises DamagedError unless every byte of them is as written,
    CheckpointError where the state has no such path.
    """
    with pause_garbage_collector():
        return _read_state_tree(files, folder, manifest, under, part_of)


def _read_state_tree(
    files: CheckpointFiles,
    folder: Path,
    manifest: Manifest,
    under: tuple[str | int, ...],
    part_of: PartOf | None,
) -> Any:
    check_manifest_structure(folder, files, manifest)
    tree = state_subtree(manifest.state, under)
    nodes = saved_tensor_nodes(tree) if under or part_of else []
    names = {manifest.tensor_name(node) for node in nodes} if under else set(manifest.tensors)
    boxes = {name: _box_of_whole_tensor(manifest.tensors[name]) for name in names}
    parts = {} if part_of is None else _boxes_to_read(part_of, manifest, nodes)
    boxes |= {name: part.box for name, part in parts.items()}
    reader = _TensorFileReader(manifest, boxes)
    # A whole state is loaded only where every file is sound, those without a tensor of it too.
    for file in _files_holding(manifest, boxes) if under or parts else manifest.files:
        read_file_and_verify(files, folder / file, manifest, partial(reader.read, manifest.shards_in(file)))
    return _put_tensors_into_tree(tree, manifest, {name: reader.tensor(name) for name in boxes}, parts)


def _box_of_whole_tensor(entry: ManifestTensor) -> TensorBox:
    return TensorBox((0,) * len(entry.shape), entry.shape)


def _boxes_to_read(
    part_of: PartOf, manifest: Manifest, nodes: list[dict[str, Any]]
) -> dict[str, RequestedTensorBox]:
    """Return the parts that are wanted; what several tensors of the state are views of is needed whole."""
    seen_otherwise = {manifest.tensor_name(node) for node in nodes if "shape" in node}
    found = {name: part_of(name, entry.shape) for name, entry in manifest.tensors.items()}
    return {name: part for name, part in found.items() if part is not None and name not in seen_otherwise}


def _files_holding(manifest: Manifest, boxes: dict[str, TensorBox]) -> set[str]:
    """Return the files that hold some of the boxes."""
    return {
        shard.file
        for name, box in boxes.items()
        for shard in manifest.tensors[name].shards
        if box.common(TensorBox(shard.offset, shard.shape)) is not None or 0 in manifest.tensors[name].shape
    }


def _put_tensors_into_tree(
    tree: Any, manifest: Manifest, tensors: dict[str, Tensor], parts: dict[str, RequestedTensorBox]
) -> Any:
    """Put tensors into a tree, with the strides and the sharing they had."""
    ready = {
        name: parts[name].made(tensor) if name in parts else _restore_strides(tensor, manifest.tensors[name])
        for name, tensor in tensors.items()
    }

    def tensor_for_node(node: dict[str, Any]) -> Any:
        whole = ready[manifest.tensor_name(node)]
        if "shape" not in node:
            return whole
        return whole.as_strided(node["shape"], node["stride"], node["offset"])

    return decode_state(tree, tensor_for_node)


class _TensorFileReader:
    """Reads what is wanted of files into tensors, and past the rest."""

    def __init__(self, manifest: Manifest, boxes: dict[str, TensorBox]) -> None:
        self._manifest, self._boxes = manifest, boxes
        self._tensors: dict[str, Tensor] = {}

    def tensor(self, name: str) -> Tensor:
        """Return the box that is wanted of a tensor, not filled where nothing of it was read yet."""
        if name not in self._tensors:
            dtype = getattr(torch, self._manifest.tensors[name].dtype)
            self._tensors[name] = torch.empty(self._boxes[name].shape, dtype=dtype)
        return self._tensors[name]

    def read(self, shards: list[tuple[str, TensorShard]], checksum: Checksum) -> None:
        """Give the checksum memory for what a file holds, in order."""
        for small, several in groupby(shards, self._is_small):
            items = list(several)
            if small and len(items) >= LEAST_TOGETHER:
                self._read_small_tensors(items, checksum)
            else:
                for name, shard in items:
                    self._read_tensor_shard(name, shard, checksum)

    def _is_small(self, item: tuple[str, TensorShard]) -> bool:
        """Return whether this is a small tensor that is wanted whole, to be read together with others."""
        name, shard = item
        return (
            shard.end - shard.begin < SMALL_BYTES
            and name in self._boxes
            and self._boxes[name].shape == shard.shape == self._manifest.tensors[name].shape
        )

    def _read_small_tensors(self, items: list[tuple[str, TensorShard]], checksum: Checksum) -> None:
        """Read small tensors in one piece: to fill each by itself costs more than to copy it."""
        for first in range(0, len(items), MOST_TOGETHER):
            some = items[first : first + MOST_TOGETHER]
            sizes = [shard.end - shard.begin for _, shard in some]
            memory = torch.empty(sum(sizes), dtype=torch.uint8)
            checksum.fill(tensor_memoryview(memory))
            checksum.settle()
            for (name, shard), values in zip(some, memory.split_with_sizes(sizes), strict=True):
                dtype = getattr(torch, self._manifest.tensors[name].dtype)
                self._tensors[name] = values.clone().view(dtype).view(shard.shape)

    def _read_tensor_shard(self, name: str, shard: TensorShard, checksum: Checksum) -> None:
        own = TensorBox(shard.offset, shard.shape)
        common = self._boxes[name].common(own) if name in self._boxes else None
        if common is None:
            read_and_discard(checksum, shard.end - shard.begin)
        else:
            _read_shard_part(checksum, own, common, self.tensor(name)[common.within(self._boxes[name])])


def _read_shard_part(checksum: Checksum, shard: TensorBox, common: TensorBox, kept: Tensor) -> None:
    """Read a shard, of which some is kept, by a detour where this does not lie in one piece."""
    if kept.is_contiguous() and common.shape[1:] == shard.shape[1:]:  # whole rows
        first = common.offset[0] - shard.offset[0] if shard.shape else 0
        row_bytes = math.prod(shard.shape[1:]) * kept.element_size()
        read_and_discard(checksum, first * row_bytes)
        checksum.fill(tensor_memoryview(kept))
        read_and_discard(
            checksum, (shard.shape[0] - first - common.shape[0]) * row_bytes if shard.shape else 0
        )
        return
    detour = torch.empty(shard.shape, dtype=kept.dtype)
    checksum.fill(tensor_memoryview(detour))
    checksum.settle()
    kept.copy_(detour[common.within(shard)])


def _restore_strides(tensor: Tensor, entry: ManifestTensor) -> Tensor:
    if entry.stride is None:
        return tensor
    # Files hold the usual order, so that any reader of safetensors gets the right numbers.
    return torch.empty_strided(entry.shape, entry.stride, dtype=tensor.dtype).copy_(tensor)
