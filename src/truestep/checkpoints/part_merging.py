# SPDX-License-Identifier: Apache-2.0
"""What several processes write of one checkpoint, joined into one. Imports no torch.

Each writes files of its own, and then a note beside them: the sizes and checksums of its files, and which boxes of which
tensors they hold. Whoever publishes the checkpoint reads the notes, and checks that the boxes make whole tensors.
"""

import json
from pathlib import Path
from typing import Any

from truestep.checkpoints.file_operations import CheckpointFiles, read_bytes, write_file
from truestep.checkpoints.manifest import ManifestFile, ManifestTensor
from truestep.checkpoints.manifest_encoding import (
    decode_file_row_counts,
    decode_manifest_files,
    encode_manifest_files,
)
from truestep.checkpoints.tensor_columns import (
    TensorColumns,
    compact_json,
    decode_tensor_columns,
    encode_tensor_columns,
)
from truestep.checkpoints.verify import check_shards_fill_tensor, open_regular_file
from truestep.core.errors import CheckpointError


def write_part_note(
    files: CheckpointFiles, folder: Path, rank: int, entries: dict[str, ManifestFile], columns: TensorColumns
) -> None:
    """Say in the folder what a process has written there."""
    parts = {"files": compact_json(encode_manifest_files(entries, columns)), **columns.texts}
    text = b",".join(b'"%s":%s' % (name.encode(), part) for name, part in parts.items())
    write_file(files, folder / _part_note_name(rank), [memoryview(b"{%s}" % text)])


def _part_note_name(rank: int) -> str:
    return f".part-r{rank:04d}.json"


def join_checkpoint_parts(
    files: CheckpointFiles,
    folder: Path,
    entries: dict[str, ManifestFile],
    tensors: dict[str, ManifestTensor],
    ranks: list[int],
) -> tuple[dict[str, ManifestFile], TensorColumns]:
    """Return the files and tensors of this process, which come first, and of the others, whose notes are removed.

    Raises CheckpointError unless every tensor is whole, and every file as long as its writer says.
    """
    all_files, all_tensors = dict(entries), dict(tensors)
    for rank in ranks:
        try:
            found = _read_part_note(files, folder / _part_note_name(rank))
            theirs = decode_manifest_files(found["files"])
            _check_file_sizes(files, folder, theirs)
            # Notes come from other processes: nothing in them is trusted.
            if twice := all_files.keys() & theirs.keys():
                raise ValueError(f"{min(twice)} is another's, too")
            all_files |= theirs
            for name, entry in decode_tensor_columns(found, decode_file_row_counts(found["files"]))[
                0
            ].items():
                all_tensors[name] = _merge_tensor_shards(all_tensors.get(name), entry)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"What rank {rank} wrote of the checkpoint is damaged: {error}.") from error
        # Before the manifest is written: a published folder holds what its manifest names.
        files.remove(folder / _part_note_name(rank))
    _check_shards_cover_tensors(all_tensors)
    return all_files, encode_tensor_columns(all_tensors, all_files)


def _read_part_note(files: CheckpointFiles, path: Path) -> Any:
    with open_regular_file(files, path) as (descriptor, size):
        return json.loads(read_bytes(files, descriptor, size))


def _check_file_sizes(files: CheckpointFiles, folder: Path, entries: dict[str, ManifestFile]) -> None:
    for name, entry in entries.items():
        size = files.status(folder / name).st_size
        if size != entry.bytes:
            raise ValueError(f"{name} has {size} bytes instead of {entry.bytes}")


def _merge_tensor_shards(one: ManifestTensor | None, other: ManifestTensor) -> ManifestTensor:
    if one is None:
        return other
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        raise ValueError(f"a tensor is {one.dtype} {one.shape} elsewhere, {other.dtype} {other.shape} there")
    return one._replace(shards=one.shards + other.shards)


def _check_shards_cover_tensors(tensors: dict[str, ManifestTensor]) -> None:
    for name, tensor in tensors.items():
        try:
            check_shards_fill_tensor(name, tensor)
        except ValueError as error:
            raise CheckpointError(
                f"What the processes wrote of the checkpoint does not fit together: {error}."
            ) from error
