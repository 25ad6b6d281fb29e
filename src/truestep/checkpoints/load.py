# SPDX-License-Identifier: Apache-2.0
"""From files back to a state: each file is read once, hashed on its way into memory of its own.

Nothing is mapped: a file that shrinks under a mapping kills the process by SIGBUS, here it is a short read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from truestep.checkpoints.files import Files
from truestep.checkpoints.manifest import Manifest, Shard, TensorEntry
from truestep.checkpoints.memory import bytes_of
from truestep.checkpoints.tree import decode, nodes_of_tensors, subtree
from truestep.checkpoints.verify import check_structure, scan, scratch, shards_in


def load_state(files: Files, folder: Path, manifest: Manifest, under: tuple[str | int, ...] = ()) -> Any:
    """Return the state of a checkpoint, or what it has under a path, on the CPU.

    Only the files that hold some of it are read, each from end to end. Raises DamagedError unless every
    byte of them is as written, CheckpointError where the state has no such path.
    """
    check_structure(folder, files, manifest)
    tree = subtree(manifest.state, under)
    names = {node["tensor"] for node in nodes_of_tensors(tree)} if under else set(manifest.tensors)
    tensors = {name: _empty(manifest.tensors[name]) for name in names}
    wanted = {shard.file for name in names for shard in manifest.tensors[name].shards}
    # A whole state is loaded only where every file is sound, those without a tensor of it too.
    for file in wanted if under else manifest.files:
        scan(files, folder / file, manifest, _buffers(file, manifest, tensors))
    return _restore(tree, manifest, tensors)


def _restore(tree: Any, manifest: Manifest, tensors: dict[str, Tensor]) -> Any:
    """Put tensors into a tree, with the strides and the sharing they had."""
    ready = {name: _restrided(tensor, manifest.tensors[name]) for name, tensor in tensors.items()}

    def tensor(node: dict[str, Any]) -> Tensor:
        whole = ready[node["tensor"]]
        if "shape" not in node:
            return whole
        return whole.as_strided(node["shape"], node["stride"], node["offset"])

    return decode(tree, tensor)


def _empty(entry: TensorEntry) -> Tensor:
    return torch.empty(entry.shape, dtype=getattr(torch, entry.dtype))


def _buffers(file: str, manifest: Manifest, tensors: dict[str, Tensor]) -> Iterator[memoryview]:
    """Yield memory for what a file holds, in order; what is of no wanted tensor is read past."""
    for name, shard in shards_in(file, manifest):
        yield from _memory(shard, tensors.get(name))


def _memory(shard: Shard, tensor: Tensor | None) -> Iterator[memoryview]:
    """Yield memory for a shard: the tensor's own, or a detour where the shard is a box that lies scattered in it."""
    if tensor is None:
        yield from scratch(shard.end - shard.begin)
        return
    box = tensor[tuple(slice(at, at + size) for at, size in zip(shard.offset, shard.shape, strict=True))]
    if box.is_contiguous():
        yield bytes_of(box)
        return
    part = torch.empty(shard.shape, dtype=tensor.dtype)
    yield bytes_of(part)
    box.copy_(part)


def _restrided(tensor: Tensor, entry: TensorEntry) -> Tensor:
    if entry.stride is None:
        return tensor
    # Files hold the usual order, so that any reader of safetensors gets the right numbers.
    return torch.empty_strided(entry.shape, entry.stride, dtype=tensor.dtype).copy_(tensor)
