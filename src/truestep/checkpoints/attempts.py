# SPDX-License-Identifier: Apache-2.0
"""How often a run began from a checkpoint without reaching its next save, kept on disk as empty files.

An attempt is one new file, `.attempt-<checkpoint>-<number>`: to count never rewrites anything, so that no
crash can lose or invent more than the attempt at hand.
"""

from collections.abc import Iterable
from pathlib import Path

from truestep.checkpoints.files import Files, sync_folder
from truestep.checkpoints.names import ATTEMPT

MAX_ATTEMPTS = 3
_UNFIT = "unfit"


def count_attempts(files: Files, directory: Path) -> dict[str, int]:
    """Return the attempts made from each checkpoint."""
    counts: dict[str, int] = {}
    for name in files.names(directory):
        if name.startswith(ATTEMPT):
            checkpoint = name.removeprefix(ATTEMPT).rpartition("-")[0]
            counts[checkpoint] = counts.get(checkpoint, 0) + 1
    return counts


def note_attempt(files: Files, directory: Path, checkpoint: str) -> int:
    """Count one more attempt, on the disk when this returns, and return how many there are."""
    number = 1 + count_attempts(files, directory).get(checkpoint, 0)
    files.close(files.create(directory / f"{ATTEMPT}{checkpoint}-{number}"))
    sync_folder(files, directory)
    return number


def mark_unfit(files: Files, directory: Path, checkpoints: Iterable[str]) -> None:
    """Note that no run can go on from these, however often it tries; it is on the disk when this returns."""
    there = files.names(directory)
    for checkpoint in checkpoints:
        if (name := f"{ATTEMPT}{checkpoint}-{_UNFIT}") not in there:
            files.close(files.create(directory / name))
    sync_folder(files, directory)


def unfit(files: Files, directory: Path) -> set[str]:
    """Return the checkpoints that were noted to be unfit since the last save."""
    parts = (
        name.removeprefix(ATTEMPT).rpartition("-")
        for name in files.names(directory)
        if name.startswith(ATTEMPT)
    )
    return {checkpoint for checkpoint, _, what in parts if what == _UNFIT}


def clear_attempts(files: Files, directory: Path) -> None:
    """Forget every attempt: the run got on."""
    for name in files.names(directory):
        if name.startswith(ATTEMPT):
            files.remove(directory / name)
