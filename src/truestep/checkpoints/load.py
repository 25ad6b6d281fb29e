# SPDX-License-Identifier: Apache-2.0
"""From files back to a state: each file is read once, hashed on its way into memory of its own.

Nothing is mapped: a file that shrinks under a mapping kills the process by SIGBUS, here it is a short read.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truestep.checkpoints.boxes import CheckpointBox, PartOf, WantedCheckpointPart
from truestep.checkpoints.files import CheckpointFiles
from truestep.checkpoints.manifest import Manifest, ManifestTensor
from truestep.checkpoints.memory import saved_bytes_of
from truestep.checkpoints.tree import decode_state, saved_tensor_nodes, state_subtree
from truestep.checkpoints.verify import check_structure, checkpoint_scratch_memory, scan_file
from truestep.core.collector import collector_at_rest


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
    with collector_at_rest():
        return _loaded(files, folder, manifest, under, part_of)


def _loaded(
    files: CheckpointFiles,
    folder: Path,
    manifest: Manifest,
    under: tuple[str | int, ...],
    part_of: PartOf | None,
) -> Any:
    check_structure(folder, files, manifest)
    tree = state_subtree(manifest.state, under)
    nodes = saved_tensor_nodes(tree)
    names = {node["tensor"] for node in nodes} if under else set(manifest.tensors)
    boxes = {name: _whole(manifest.tensors[name]) for name in names}
    parts = {} if part_of is None else _parts(part_of, manifest, nodes)
    boxes |= {name: part.box for name, part in parts.items()}
    tensors = {name: _empty(manifest.tensors[name], box) for name, box in boxes.items()}
    # A whole state is loaded only where every file is sound, those without a tensor of it too.
    for file in _wanted(manifest, boxes) if under or parts else manifest.files:
        scan_file(files, folder / file, manifest, _buffers(file, manifest, tensors, boxes))
    return _restore(tree, manifest, tensors, parts)


def _whole(entry: ManifestTensor) -> CheckpointBox:
    return CheckpointBox((0,) * len(entry.shape), entry.shape)


def _parts(
    part_of: PartOf, manifest: Manifest, nodes: list[dict[str, Any]]
) -> dict[str, WantedCheckpointPart]:
    """Return the parts that are wanted; what several tensors of the state are views of is needed whole."""
    seen_otherwise = {node["tensor"] for node in nodes if "shape" in node}
    found = {name: part_of(name, entry.shape) for name, entry in manifest.tensors.items()}
    return {name: part for name, part in found.items() if part is not None and name not in seen_otherwise}


def _wanted(manifest: Manifest, boxes: dict[str, CheckpointBox]) -> set[str]:
    """Return the files that hold some of the boxes."""
    return {
        shard.file
        for name, box in boxes.items()
        for shard in manifest.tensors[name].shards
        if box.common(CheckpointBox(shard.offset, shard.shape)) is not None
        or 0 in manifest.tensors[name].shape
    }


def _restore(
    tree: Any, manifest: Manifest, tensors: dict[str, Tensor], parts: dict[str, WantedCheckpointPart]
) -> Any:
    """Put tensors into a tree, with the strides and the sharing they had."""
    ready = {
        name: parts[name].made(tensor) if name in parts else _restrided(tensor, manifest.tensors[name])
        for name, tensor in tensors.items()
    }

    def tensor(node: dict[str, Any]) -> Any:
        whole = ready[node["tensor"]]
        if "shape" not in node:
            return whole
        return whole.as_strided(node["shape"], node["stride"], node["offset"])

    return decode_state(tree, tensor)


def _empty(entry: ManifestTensor, box: CheckpointBox) -> Tensor:
    return torch.empty(box.shape, dtype=getattr(torch, entry.dtype))


def _buffers(
    file: str, manifest: Manifest, tensors: dict[str, Tensor], boxes: dict[str, CheckpointBox]
) -> Iterator[memoryview]:
    """Yield memory for what a file holds, in order; what is of no wanted box is read past."""
    for name, shard in manifest.shards_in(file):
        if name in tensors and tensors[name].shape == shard.shape == manifest.tensors[name].shape:
            yield saved_bytes_of(tensors[name])  # most are whole: quick, for there may be many
            continue
        own = CheckpointBox(shard.offset, shard.shape)
        common = boxes[name].common(own) if name in boxes else None
        if common is None:
            yield from checkpoint_scratch_memory(shard.end - shard.begin)
        else:
            yield from _memory(own, common, tensors[name][common.within(boxes[name])])


def _memory(shard: CheckpointBox, common: CheckpointBox, kept: Tensor) -> Iterator[memoryview]:
    """Yield memory for a shard: that of what is kept of it, or a detour where this does not lie in one piece."""
    if kept.is_contiguous() and common.shape[1:] == shard.shape[1:]:  # whole rows
        first = common.offset[0] - shard.offset[0] if shard.shape else 0
        row_bytes = math.prod(shard.shape[1:]) * kept.element_size()
        yield from checkpoint_scratch_memory(first * row_bytes)
        yield saved_bytes_of(kept)
        yield from checkpoint_scratch_memory(
            (shard.shape[0] - first - common.shape[0]) * row_bytes if shard.shape else 0
        )
        return
    detour = torch.empty(shard.shape, dtype=kept.dtype)
    yield saved_bytes_of(detour)
    # Only now is it filled: the reader has asked for the next memory.
    kept.copy_(detour[common.within(shard)])


def _restrided(tensor: Tensor, entry: ManifestTensor) -> Tensor:
    if entry.stride is None:
        return tensor
    # Files hold the usual order, so that any reader of safetensors gets the right numbers.
    return torch.empty_strided(entry.shape, entry.stride, dtype=tensor.dtype).copy_(tensor)
