# SPDX-License-Identifier: Apache-2.0
"""What is removed from a directory of checkpoints, and in which order. Imports no torch."""

import stat
from pathlib import Path

from truestep.engine.checkpoints.checkpoint import Checkpoint
from truestep.engine.checkpoints.files import Files, remove_tree, sync_folder
from truestep.engine.checkpoints.names import DELETED, TEMPORARY
from truestep.engine.checkpoints.retention import Retention
from truestep.engine.checkpoints.selection import read_all


def prune(files: Files, directory: Path, retention: Retention) -> list[str]:
    """Remove the sound checkpoints that are not to be kept, and return their names.

    Each is renamed first, and the new name synced: one that is half deleted is never seen as a damaged one.
    """
    names = removable(files, directory, retention)
    for name in names:
        files.rename(directory / name, directory / f"{DELETED}{name}")
    if names:
        sync_folder(files, directory)
    for name in names:
        remove_tree(files, directory / f"{DELETED}{name}")
    return names


def removable(files: Files, directory: Path, retention: Retention) -> list[str]:
    """Return the names of the sound checkpoints that are not to be kept, newest first."""
    sound = [
        found for found in read_all(files, directory) if isinstance(found, Checkpoint) and _is_whole(found)
    ]
    kept = retention.kept([checkpoint.summary for checkpoint in sound])
    return [checkpoint.name for checkpoint in sound if checkpoint.summary.sequence not in kept]


def _is_whole(checkpoint: Checkpoint) -> bool:
    """Whether all files are there with their sizes; their contents were checked by whoever wrote them."""
    try:
        return all(
            checkpoint.files.status(checkpoint.path / name).st_size == entry.bytes
            for name, entry in checkpoint.manifest.files.items()
        )
    except OSError:
        return False


def remove_leftovers(files: Files, directory: Path) -> None:
    """Remove what killed processes left half written or half deleted. Needs the directory's lock."""
    for name in files.names(directory):
        if name.startswith((TEMPORARY, DELETED)):
            path = directory / name
            if stat.S_ISDIR(files.status(path).st_mode):
                remove_tree(files, path)
            else:
                files.remove(path)
