# SPDX-License-Identifier: Apache-2.0
"""The newest checkpoint of a run that can be used, for whoever looks at it from outside."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from truestep.checkpoints.checkpoint import Checkpoint
from truestep.checkpoints.checkpoint_names import FOLDER, committed_checkpoints
from truestep.checkpoints.checkpoint_selection import (
    MID_STEP,
    ChosenCheckpoint,
    choose_checkpoint,
    mid_step_refusal,
    warn_of_unused_checkpoints,
)
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.foreign_formats import describe_path_without_run
from truestep.checkpoints.manifest import MANIFEST_NAME
from truestep.core.errors import CheckpointError

_FIRST = (
    " A run writes its first when an epoch has ended, when ts.Saving says so, between two batches after run.save(), and when it is "
    "closed."
)

T = TypeVar("T")


def checkpoints_folder(path: Path) -> Path:
    """Return the folder of checkpoints of a run, given the run's directory or that folder itself."""
    inside = path / FOLDER
    return inside if inside.is_dir() else path


def read_newest_checkpoint(
    path: Path, use: Callable[[Checkpoint], T], files: CheckpointFiles | None = None
) -> tuple[Checkpoint, T]:
    """Return a checkpoint, given by its folder, or a run's newest of which `use` finds no damage, and what
    it returns.

    Reads only; a run that is going on may be asked. Raises CheckpointError where there is none.
    """
    files = files or CheckpointFiles()
    if (path / MANIFEST_NAME).exists():
        checkpoint = Checkpoint.open(path, files)
        return checkpoint, use(checkpoint)
    folder = checkpoints_folder(path)
    if not folder.is_dir():
        what = "is a file, not a run's directory" if path.exists() else "does not exist"
        raise CheckpointError(
            f"{path} {what}, so there is no checkpoint to read.{describe_path_without_run(path)}"
        )
    choice = _choose_despite_pruning(files, folder, use)
    if choice.checkpoint is None:
        instead = "" if choice.passed_over else describe_path_without_run(path)
        passed = "".join(f"; {item}" for item in choice.passed_over)
        raise CheckpointError(
            f"{path} holds no checkpoint to read: there is no {MANIFEST_NAME} in it, and no folder like "
            f"000001-step-100 in it or in its {FOLDER!r}{passed}.{instead or _FIRST}"
        )
    # That one from the middle of a step is passed over is meant, and no news.
    warn_of_unused_checkpoints(folder, [item for item in choice.passed_over if item.reason != MID_STEP])
    return choice.checkpoint, choice.result


def _choose_despite_pruning(
    files: CheckpointFiles, folder: Path, use: Callable[[Checkpoint], T]
) -> ChosenCheckpoint:
    """Choose; look again where all that was there has been replaced meanwhile."""
    while True:
        names = committed_checkpoints(files, folder)
        choice = choose_checkpoint(files, folder, mid_step_refusal, use)
        if choice.checkpoint or committed_checkpoints(files, folder) == names:
            return choice
