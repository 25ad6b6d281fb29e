# SPDX-License-Identifier: Apache-2.0
"""The commit: a checkpoint appears under its name whole, checked and on the disk, or not at all.

A folder of a temporary name beside the target gets the files, then the manifest; each is synced, then the
folder. One rename publishes it, and one sync of the parent makes that last. Only then is it acknowledged.
Where a state is divided among processes, each of the others writes files of its own into that folder, and is
waited for before the manifest is written.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from truestep.checkpoints.checkpoint_names import TEMPORARY, checkpoint_folder_name
from truestep.checkpoints.checksum import Checksum
from truestep.checkpoints.file_layout import FileLayout, StateLayout
from truestep.checkpoints.file_operations import (
    CHUNK_BYTES,
    CheckpointFiles,
    remove_tree,
    sync,
    sync_folder,
    write_all,
    write_file,
)
from truestep.checkpoints.manifest import (
    HEAD_BYTES,
    MANIFEST_NAME,
    CheckpointSummary,
    Manifest,
    ManifestFile,
    read_promised_checksum,
)
from truestep.checkpoints.manifest_encoding import manifest_bytes
from truestep.checkpoints.part_merging import join_checkpoint_parts
from truestep.core.garbage_collection import pause_garbage_collector

if TYPE_CHECKING:
    from truestep.checkpoints.concurrent_copy import SharedCopy

WRITE_BACK_BYTES = 32 << 20  # written before the disk is set to work on them
LOOK_BACK_BYTES = 512 << 20  # written before these, which the disk may have done with since


@dataclass(frozen=True)
class CheckpointFileImage:
    """A file to be written: what is in it, and its pieces.

    `release` is called when the memory of its pieces is not read any more.
    """

    layout: FileLayout
    pieces: Callable[[], Iterator[memoryview]]
    release: Callable[[], None] = lambda: None


class SharedCheckpointFolder(NamedTuple):
    """A folder in which other processes write, too; `wait` returns their ranks when all have, or raises."""

    folder: Path
    wait: Callable[[], list[int]]


@dataclass(frozen=True, kw_only=True)
class PendingCheckpoint:
    """A checkpoint about to be written; of one that is shared, what this process has of it."""

    summary: CheckpointSummary
    layout: StateLayout
    images: list[CheckpointFileImage]
    state: Any
    copying: "SharedCopy"
    shared: SharedCheckpointFolder | None = None

    @property
    def bytes(self) -> int:
        """Bytes of its tensors."""
        return sum(image.layout.data_bytes for image in self.images)


class CommittedCheckpoint(NamedTuple):
    """A checkpoint that is on the disk: its folder, its manifest without the tensors, and the manifest's checksum."""

    folder: Path
    manifest: Manifest
    checksum: str


def commit_checkpoint(
    files: CheckpointFiles, directory: Path, pending: PendingCheckpoint
) -> CommittedCheckpoint:
    """Write a checkpoint and return it once nothing can take it away any more.

    After an OSError nothing was published, unless it was the last sync that failed: then the folder is
    whole, but might not survive a loss of power, and it counts as not written.
    """
    name = checkpoint_folder_name(pending.summary)
    temporary = pending.shared.folder if pending.shared else make_temporary_folder(files, directory, name)
    try:
        manifest, checksum = _write_checkpoint_content(files, temporary, pending)
        files.rename(temporary, directory / name)
    except BaseException:
        remove_unfinished_checkpoint(files, temporary)
        raise
    # Outside of the `try`: under its own name the folder is whole, and must not be discarded because a sync failed.
    sync_folder(files, directory)
    return CommittedCheckpoint(directory / name, manifest, checksum)


def make_temporary_folder(files: CheckpointFiles, directory: Path, name: str) -> Path:
    """Make the folder that is to become the checkpoint of this name."""
    # A name of its own: a process that lost the lock without noticing may still write to a folder of this number.
    temporary = directory / f"{TEMPORARY}{name}-{uuid.uuid4().hex[:8]}"
    files.make_folder(temporary)
    return temporary


def _write_checkpoint_content(
    files: CheckpointFiles, folder: Path, pending: PendingCheckpoint
) -> tuple[Manifest, str]:
    entries, layout = write_images(files, folder, pending.images), pending.layout
    ranks = pending.shared.wait() if pending.shared is not None else None
    with pause_garbage_collector():  # a pass over all objects would take longer than this
        if ranks is None:
            columns = layout.columns
        else:
            entries, columns = join_checkpoint_parts(files, folder, entries, layout.tensors(), ranks)
        manifest = Manifest(summary=pending.summary, files=entries, tensors={}, state=pending.state)
        data = manifest_bytes(manifest, columns)
    write_file(files, folder / MANIFEST_NAME, [memoryview(data)])
    # The names in the folder before the rename: a published folder must never be found without its files.
    sync_folder(files, folder)
    return manifest, read_promised_checksum(data[:HEAD_BYTES])


def write_images(
    files: CheckpointFiles, folder: Path, images: list[CheckpointFileImage]
) -> dict[str, ManifestFile]:
    """Write files; return what the manifest says of them."""
    return {image.layout.name: _write_image(files, folder, image) for image in images}


def _write_image(files: CheckpointFiles, folder: Path, image: CheckpointFileImage) -> ManifestFile:
    """Write a file; the checksum is that of the memory it comes from, not of what the disk says it got."""
    descriptor = files.create(folder / image.layout.name)
    try:
        entry = _write_pieces(files, descriptor, image.pieces())
        image.release()
        sync(files, descriptor)
        return entry
    finally:
        files.close(descriptor)


def _write_pieces(files: CheckpointFiles, descriptor: int, pieces: Iterable[memoryview]) -> ManifestFile:
    size = handed_on = 0
    with Checksum() as checksum:
        for chunk in _split_into_chunks(pieces):
            # Handed over before it is written, so that other threads hash it meanwhile.
            checksum.update(chunk)
            write_all(files, descriptor, chunk)
            size += len(chunk)
            if size - handed_on >= WRITE_BACK_BYTES:
                # What was handed on before, too: where the disk has it, its memory is given back, and the next writes
                # get that instead of memory that was never used, which costs several times as much.
                begin = max(0, handed_on - LOOK_BACK_BYTES)
                with suppress(OSError):  # a hint; whether the file is on the disk, `sync` says
                    files.write_back(descriptor, begin, size - begin)
                handed_on = size
        return ManifestFile(size, checksum.hexdigest())


def _split_into_chunks(pieces: Iterable[memoryview]) -> Iterable[memoryview]:
    for piece in pieces:
        for start in range(0, len(piece), CHUNK_BYTES):
            yield piece[start : start + CHUNK_BYTES]


def remove_unfinished_checkpoint(files: CheckpointFiles, folder: Path) -> None:
    """Remove what is left of an attempt, as far as that is possible; opening the store removes the rest."""
    with suppress(OSError):
        remove_tree(files, folder)
