# SPDX-License-Identifier: Apache-2.0
"""Which tensor of a state goes into which file of the checkpoint, and where in it.

One file for each first key of the state; under "learners" one for each part of each learner. The names inside
are what remains of the path, so `learners.net.modules-r0000.safetensors` is a plain file of weights.
"""

import re
from dataclasses import dataclass

from truestep.engine.checkpoints.dtypes import DTYPES, is_dense
from truestep.engine.checkpoints.manifest import Shard, TensorEntry
from truestep.engine.checkpoints.regions import Region
from truestep.engine.checkpoints.safetensors_header import Entry, header_bytes
from truestep.engine.checkpoints.tree import unused

LEARNERS = "learners"


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """A file: its header, and its regions in the order and at the offsets in which they follow it."""

    name: str
    header: bytes
    regions: list[Region]
    offsets: list[int]
    keys: list[str]
    data_bytes: int


@dataclass(frozen=True)
class Layout:
    """The files of a checkpoint, and where each tensor lies in them."""

    files: list[FileLayout]
    tensors: dict[str, TensorEntry]


def lay_out(regions: list[Region], rank: int = 0) -> Layout:
    """Sort regions into files."""
    groups: dict[tuple[str, ...], list[Region]] = {}
    for region in regions:
        groups.setdefault(_group(region.name), []).append(region)
    names: set[str] = set()
    files = []
    for group, members in groups.items():
        stem = unused(re.sub(r"[^A-Za-z0-9_.-]", "_", ".".join(group)).lstrip(".") or "state", names)
        names.add(stem)
        files.append(lay_out_file(f"{stem}-r{rank:04d}.safetensors", "/".join(group) + "/", members))
    tensors = {}
    for file in files:
        for region, key, begin in zip(file.regions, file.keys, file.offsets, strict=True):
            tensors[region.name] = _entry(region, file, key, begin)
    return Layout(files, tensors)


def _group(name: str) -> tuple[str, ...]:
    parts = name.split("/")
    depth = 3 if parts[0] == LEARNERS else 1
    return tuple(parts[: min(depth, len(parts) - 1)]) or ("state",)


def lay_out_file(name: str, prefix: str, members: list[Region]) -> FileLayout:
    """Place regions in one file, under their names without the prefix."""
    # wide elements first: then each tensor begins at a multiple of its own element size
    regions = sorted(members, key=lambda region: -DTYPES[region.dtype].element_bytes)
    keys: list[str] = []
    offsets: list[int] = []
    entries: dict[str, Entry] = {}
    at = 0
    for region in regions:
        stored = DTYPES[region.dtype]
        keys.append(unused(region.name.removeprefix(prefix), set(entries)))
        offsets.append(at)
        shape = stored.shape(tuple(region.tensor.shape))
        entries[keys[-1]] = Entry(stored.code, shape, at, at + region.byte_count)
        at += region.byte_count
    header = header_bytes(entries, {"format": "pt"})
    return FileLayout(name=name, header=header, regions=regions, offsets=offsets, keys=keys, data_bytes=at)


def _entry(region: Region, file: FileLayout, key: str, begin: int) -> TensorEntry:
    shape = tuple(region.tensor.shape)
    place = {"file": file.name, "key": key, "begin": begin, "end": begin + region.byte_count}
    shard = Shard(**place, offset=(0,) * len(shape), shape=shape)  # type: ignore[arg-type]
    return TensorEntry(dtype=region.dtype, shape=shape, stride=_stride(region), shards=(shard,))


def _stride(region: Region) -> tuple[int, ...] | None:
    """Return the strides to be restored: of a dense tensor in another order (channels last), else None."""
    tensor = region.tensor
    shape, stride = tuple(tensor.shape), tuple(tensor.stride())
    if tensor.is_contiguous() or tensor.numel() == 0 or not is_dense(shape, stride):
        return None
    return stride
