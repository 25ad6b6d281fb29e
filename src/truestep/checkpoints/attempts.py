# SPDX-License-Identifier: Apache-2.0
"""How often a run began from a checkpoint without reaching its next save, kept on disk as empty files.

An attempt is one new file, `.attempt-<checkpoint>-<number>`: to count never rewrites anything, so that no
crash can lose or invent more than the attempt at hand.
"""

from pathlib import Path

from truestep.checkpoints.files import Files, sync_folder
from truestep.checkpoints.names import ATTEMPT

MAX_ATTEMPTS = 3


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


def clear_attempts(files: Files, directory: Path) -> None:
    """Forget every attempt: the run got on."""
    for name in files.names(directory):
        if name.startswith(ATTEMPT):
            files.remove(directory / name)
