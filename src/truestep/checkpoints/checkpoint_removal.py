# SPDX-License-Identifier: Apache-2.0
"""What is removed from a directory of checkpoints, and in which order. Imports no torch."""

import stat
from collections.abc import Collection
from pathlib import Path

from truestep.checkpoints.checkpoint import Checkpoint
from truestep.checkpoints.checkpoint_names import DELETED, TEMPORARY
from truestep.checkpoints.checkpoint_selection import read_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles, remove_tree, sync_folder
from truestep.checkpoints.manifest import Manifest
from truestep.checkpoints.retention import Retention


def prune_checkpoints(
    files: CheckpointFiles,
    directory: Path,
    retention: Retention,
    damaged: Collection[str] = (),
    known: dict[str, Manifest] | None = None,
    *,
    also: Collection[int] = (),
) -> None:
    """Remove the sound checkpoints that are not to be kept; those of the numbers in `also` are.

    To be called by whoever has just written the newest: the others are judged by their manifests and sizes,
    and those known to be damaged count for nothing.
    """
    _, rest = split_by_retention(files, directory, retention, damaged, known)
    remove_checkpoints(
        files, directory, [checkpoint.name for checkpoint in rest if checkpoint.summary.sequence not in also]
    )


def undamaged_checkpoints(
    files: CheckpointFiles,
    directory: Path,
    damaged: Collection[str] = (),
    known: dict[str, Manifest] | None = None,
) -> list[Checkpoint]:
    """Return the checkpoints of which nothing wrong is known, newest first, judged by their manifests and sizes.

    With `known`, as in `read_manifest`, they may lack tensors and state.
    """
    return [
        found
        for found in read_checkpoints(files, directory, known)
        if isinstance(found, Checkpoint) and _has_all_files(found) and found.name not in damaged
    ]


def split_by_retention(
    files: CheckpointFiles,
    directory: Path,
    retention: Retention,
    damaged: Collection[str] = (),
    known: dict[str, Manifest] | None = None,
) -> tuple[list[Checkpoint], list[Checkpoint]]:
    """Return the checkpoints to keep and the others, newest first; what is damaged is neither."""
    sound = undamaged_checkpoints(files, directory, damaged, known)
    kept = retention.kept([checkpoint.summary for checkpoint in sound])
    return (
        [checkpoint for checkpoint in sound if checkpoint.summary.sequence in kept],
        [checkpoint for checkpoint in sound if checkpoint.summary.sequence not in kept],
    )


def remove_checkpoints(files: CheckpointFiles, directory: Path, names: list[str]) -> None:
    """Remove checkpoints, each renamed first and the new name synced: none is ever seen half deleted."""
    for name in names:
        files.rename(directory / name, directory / f"{DELETED}{name}")
    if names:
        # Before anything inside is removed: after a loss of power the old name must not lead to half a checkpoint.
        sync_folder(files, directory)
    for name in names:
        remove_tree(files, directory / f"{DELETED}{name}")


def _has_all_files(checkpoint: Checkpoint) -> bool:
    """Whether all files are there with their sizes; their contents were checked by whoever wrote them."""
    try:
        # Reading every byte at each save would take as long as writing them.
        return all(
            checkpoint.files.status(checkpoint.path / name).st_size == entry.bytes
            for name, entry in checkpoint.manifest.files.items()
        )
    # gone, or not to be read: neither counts as one that a run could go on from
    except OSError:
        return False


def remove_partial_checkpoints(files: CheckpointFiles, directory: Path) -> None:
    """Remove what killed processes left half written or half deleted. Needs the directory's lock.

    Others that wrote under the lock of a process that is gone may still write: what they have open by its old name is renamed
    first, so that nothing new comes in.
    """
    for name in files.names(directory):
        if name.startswith((TEMPORARY, DELETED)):
            path = directory / name
            if name.startswith(TEMPORARY):
                path = directory / f"{DELETED}{name.removeprefix(TEMPORARY)}"
                files.rename(directory / name, path)
            if stat.S_ISDIR(files.status(path).st_mode):
                remove_tree(files, path)
            else:
                files.remove(path)
