# SPDX-License-Identifier: Apache-2.0
"""The names in a folder of checkpoints.

`000042-step-1200` is the 42nd save of the run, at step 1200. The number of the save, not the step, says
which is newest: after going back to an earlier step, the checkpoints of the abandoned way are the older ones.
"""

import re
from pathlib import Path

from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.manifest import CheckpointSummary

TEMPORARY = ".tmp-"
DELETED = ".del-"
ATTEMPT = ".attempt-"
FOLDER = "checkpoints"
LOCK = ".lock"
_NAME = re.compile(r"(\d{6,})-step-(\d+)")


def checkpoint_folder_name(summary: CheckpointSummary) -> str:
    """Return the name of a checkpoint's folder."""
    return f"{summary.sequence:06d}-step-{summary.step}"


def sequence_of_checkpoint_name(name: str) -> int | None:
    """Return the number of the save in a folder's name; None for what is no checkpoint's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def committed_checkpoints(files: CheckpointFiles, directory: Path) -> list[str]:
    """Return the names of the checkpoints in a directory, newest first; damaged ones are among them."""
    names = [name for name in files.names(directory) if sequence_of_checkpoint_name(name) is not None]
    return sorted(names, key=lambda name: sequence_of_checkpoint_name(name) or 0, reverse=True)


def next_unused_sequence(files: CheckpointFiles, directory: Path) -> int:
    """Return a number above that of everything here, also of what was begun or is half deleted."""
    matches = (_NAME.search(name) for name in files.names(directory))
    return 1 + max((int(match[1]) for match in matches if match), default=0)
