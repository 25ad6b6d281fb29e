# SPDX-License-Identifier: Apache-2.0
"""What became of the runs that went on from a checkpoint without another save, kept on disk as empty files.

An attempt is one new file, `.attempt-<checkpoint>-<number>`: to count never rewrites anything, so that no
crash can lose or invent more than the attempt at hand. The same file with a word for the number says that the
checkpoint is unfit, or that the run ended there.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from truestep.checkpoints.checkpoint_names import ATTEMPT
from truestep.checkpoints.file_operations import CheckpointFiles, sync_folder

MAX_ATTEMPTS = 3
_UNFIT = "unfit"
ENDINGS = ("finished", "closed")


def _attempt_path(directory: Path, checkpoint: str, what: int | str) -> Path:
    return directory / f"{ATTEMPT}{checkpoint}-{what}"


def count_attempts(files: CheckpointFiles, directory: Path) -> dict[str, int]:
    """Return the attempts made from each checkpoint."""
    counts: dict[str, int] = {}
    for checkpoint, what in _attempt_marks(files, directory):
        if what.isdecimal():
            counts[checkpoint] = counts.get(checkpoint, 0) + 1
    return counts


def _attempt_marks(files: CheckpointFiles, directory: Path) -> Iterator[tuple[str, str]]:
    """Yield each mark's checkpoint and its number or word."""
    for name in files.names(directory):
        if name.startswith(ATTEMPT):
            checkpoint, _, what = name.removeprefix(ATTEMPT).rpartition("-")
            yield checkpoint, what


def record_attempt(files: CheckpointFiles, directory: Path, checkpoint: str) -> int:
    """Count one more attempt, on the disk when this returns, and return how many there are."""
    # Nobody else counts meanwhile: the caller holds the directory's lock.
    number = 1 + count_attempts(files, directory).get(checkpoint, 0)
    files.close(files.create(_attempt_path(directory, checkpoint, number)))
    if how := recorded_run_end_at_checkpoint(files, directory, checkpoint):  # it is at work again
        files.remove(_attempt_path(directory, checkpoint, how))
    sync_folder(files, directory)
    return number


def decrement_attempts(files: CheckpointFiles, directory: Path, checkpoint: str) -> None:
    """Count one attempt less: what ended it has nothing to do with the checkpoint."""
    if number := count_attempts(files, directory).get(checkpoint, 0):
        files.remove(_attempt_path(directory, checkpoint, number))
        sync_folder(files, directory)


def record_run_end_at_checkpoint(files: CheckpointFiles, directory: Path, checkpoint: str, how: str) -> None:
    """Note that the run ended where a checkpoint stood already."""
    files.close(files.create(_attempt_path(directory, checkpoint, how)))
    sync_folder(files, directory)


def recorded_run_end_at_checkpoint(files: CheckpointFiles, directory: Path, checkpoint: str) -> str | None:
    """Return how a run ended at a checkpoint that was saved before for another reason; None where it did not."""
    return next(
        (how for name, how in _attempt_marks(files, directory) if name == checkpoint and how in ENDINGS), None
    )


def mark_unfit_checkpoints(files: CheckpointFiles, directory: Path, checkpoints: Iterable[str]) -> None:
    """Note that no run can go on from these, however often it tries; it is on the disk when this returns."""
    there = files.names(directory)
    for checkpoint in checkpoints:
        if (mark := _attempt_path(directory, checkpoint, _UNFIT)).name not in there:
            files.close(files.create(mark))
    sync_folder(files, directory)


def unfit_checkpoints(files: CheckpointFiles, directory: Path) -> set[str]:
    """Return the checkpoints that were noted to be unfit since the last save."""
    return {checkpoint for checkpoint, what in _attempt_marks(files, directory) if what == _UNFIT}


def clear_attempts(files: CheckpointFiles, directory: Path) -> None:
    """Forget every attempt: the run got on."""
    for name in files.names(directory):
        if name.startswith(ATTEMPT):
            # Not synced: if a loss of power brings marks back, some starts are counted that ended well, and it takes three.
            files.remove(directory / name)
