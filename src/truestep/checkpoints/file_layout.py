# SPDX-License-Identifier: Apache-2.0
"""Which tensor of a state goes into which file of the checkpoint, and where in it.

One file for each first key of the state; under "learners" one for each part of each learner. The names inside
are what remains of the path, so `learners.net.modules-r0000.safetensors` is a plain file of weights.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from truestep.checkpoints.dtype_encoding import DTYPES
from truestep.checkpoints.manifest import ManifestTensor, TensorShard
from truestep.checkpoints.safetensors_header import SafetensorsEntry, safetensors_header
from truestep.checkpoints.shared_memory_regions import TensorRegion
from truestep.checkpoints.state_codec import unused_saved_name
from truestep.checkpoints.tensor_columns import (
    FileColumns,
    TensorColumns,
    encode_file_columns,
    join_file_columns,
)

LEARNERS = "learners"
MOST_CHARACTERS = 80  # of a file's name: Linux has 255, and Windows 260 for a whole path


@dataclass(frozen=True)
class PlacedRegion:
    """A region in a file: its name there, and where its bytes begin."""

    region: TensorRegion
    key: str
    begin: int

    @property
    def end(self) -> int:
        """Where its bytes end."""
        return self.begin + self.region.byte_count


@dataclass(frozen=True)
class FileLayout:
    """A file: its name, and what follows its header, in order."""

    name: str
    placed: list[PlacedRegion]

    @property
    def data_bytes(self) -> int:
        """Bytes that follow the header."""
        return self.placed[-1].end

    @cached_property
    def header(self) -> bytes:
        """The file's header."""
        entries = {item.key: _safetensors_header_entry(item) for item in self.placed}
        # transformers refuses a safetensors file whose metadata lack it
        return safetensors_header(entries, {"format": "pt"})

    def tensors(self) -> Iterator[tuple[str, TensorShard, ManifestTensor]]:
        """Yield the name of each tensor, what of it lies in this file, and the whole."""
        for item in self.placed:
            whole = _manifest_entry(self.name, item)
            yield item.region.name, whole.shards[0], whole

    @cached_property
    def columns(self) -> FileColumns:
        """What the manifest's columns have of this file."""
        return encode_file_columns(list(self.tensors()))

    def relaid_for_tensors(self, tensors: list[Tensor]) -> "FileLayout":
        """Return the layout for other tensors of the same names and dtypes."""
        placed: list[PlacedRegion] = []
        for item, tensor in zip(self.placed, tensors, strict=True):
            region = item.region if item.region.piece else TensorRegion.of(item.region.name, tensor)
            region.tensor = None  # a layout keeps none alive
            placed.append(PlacedRegion(region, item.key, placed[-1].end if placed else 0))
        return FileLayout(self.name, placed)


@dataclass(frozen=True)
class StateLayout:
    """The files of a state, and what its manifest says of the tensors in them."""

    files: list[FileLayout]

    @property
    def rows(self) -> dict[str, int]:
        """The row of each tensor's name in the columns."""
        names = (item.region.name for file in self.files for item in file.placed)
        return {name: row for row, name in enumerate(names)}

    def tensors(self) -> dict[str, ManifestTensor]:
        """Return the tensors, in the order of their rows."""
        return {name: whole for file in self.files for name, _, whole in file.tensors()}

    @cached_property
    def columns(self) -> TensorColumns:
        """The columns of the tensors, which are kept from save to save."""
        return join_file_columns({file.name: file.columns for file in self.files})


def lay_out_files(regions: list[TensorRegion], rank: int = 0) -> list[FileLayout]:
    """Sort regions into files of the process of this rank."""
    groups: dict[tuple[str, ...], list[TensorRegion]] = {}
    for region in regions:
        if region.is_empty_here:
            continue
        groups.setdefault(_file_group_of_tensor(region.name), []).append(region)
    taken: set[str] = set()
    files = []
    for group, members in groups.items():
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", ".".join(group)).lstrip(".")[:MOST_CHARACTERS] or "state"
        # in small letters, since Windows and macOS take names that differ by case alone for one file
        small = unused_saved_name(stem.lower(), taken)
        taken.add(small)
        stem += small[len(stem) :]
        files.append(lay_out_file(f"{stem}-r{rank:04d}.safetensors", "/".join(group) + "/", members))
    return files


def _file_group_of_tensor(name: str) -> tuple[str, ...]:
    parts = name.split("/")
    depth = 3 if parts[0] == LEARNERS else 1
    return tuple(parts[: min(depth, len(parts) - 1)]) or ("state",)


def lay_out_file(name: str, prefix: str, members: list[TensorRegion]) -> FileLayout:
    """Place regions in one file, under their names without the prefix."""
    # wide elements first: then each tensor begins at a multiple of its own element size
    regions = sorted(members, key=lambda region: -DTYPES[region.dtype].element_bytes)
    placed: dict[str, PlacedRegion] = {}
    at = 0
    for region in regions:
        key = unused_saved_name(region.name.removeprefix(prefix), placed)
        placed[key] = PlacedRegion(region, key, at)
        at = placed[key].end
    return FileLayout(name, list(placed.values()))


def _safetensors_header_entry(item: PlacedRegion) -> SafetensorsEntry:
    stored = DTYPES[item.region.dtype]
    return SafetensorsEntry(stored.code, stored.shape(item.region.shape), item.begin, item.end)


def _manifest_entry(file: str, item: PlacedRegion) -> ManifestTensor:
    region = item.region
    whole, offset = region.shape, (0,) * len(region.shape)
    if region.piece is not None:
        whole, offset = region.piece.whole, region.piece.offset
    shard = TensorShard(
        file=file, key=item.key, begin=item.begin, end=item.end, offset=offset, shape=region.shape
    )
    return ManifestTensor(dtype=region.dtype, shape=whole, stride=region.stride, shards=(shard,))
