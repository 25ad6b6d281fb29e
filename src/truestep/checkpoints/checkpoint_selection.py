# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint of a directory is used: the newest that is sound. Imports no torch."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from truestep.checkpoints.checkpoint import Checkpoint, PassedOver
from truestep.checkpoints.checkpoint_names import committed_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.manifest import DamagedCheckpointError, Manifest, NewerCheckpointError
from truestep.checkpoints.verify import read_manifest
from truestep.core.errors import CheckpointError
from truestep.core.user_frames import warn_user

MID_STEP = "it was saved in the middle of a step"


def read_checkpoints(
    files: CheckpointFiles, directory: Path, known: dict[str, Manifest] | None = None
) -> Iterator[Checkpoint | PassedOver]:
    """Yield what is in a directory, newest first: checkpoints, and what can't be read with the reason.

    Only manifests are read; `known` as in `read_manifest`.
    """
    for name in committed_checkpoints(files, directory):
        try:
            manifest = read_manifest(files, directory / name, known)
        except (DamagedCheckpointError, NewerCheckpointError, OSError) as error:
            # pruned, since its name was read, by the process that owns the directory
            if name in committed_checkpoints(files, directory):
                newer = isinstance(error, NewerCheckpointError)
                yield PassedOver(name, str(error), damaged=not newer, newer=newer)
        else:
            yield Checkpoint(path=directory / name, manifest=manifest, files=files)


def mid_step_refusal(checkpoint: Checkpoint) -> str | None:
    """Refuse what was saved in the middle of a step: it is no state to go on from."""
    return None if checkpoint.summary.complete else MID_STEP


class ChosenCheckpoint(NamedTuple):
    """A checkpoint, what was made of it, and what was passed over to reach it."""

    checkpoint: Checkpoint | None
    result: Any
    passed_over: tuple[PassedOver, ...]


def choose_checkpoint(
    files: CheckpointFiles,
    directory: Path,
    refuse: Callable[[Checkpoint], str | None],
    use: Callable[[Checkpoint], Any],
) -> ChosenCheckpoint:
    """Choose the newest checkpoint that is not refused and on which `use` finds no damage.

    There is none where the directory has none, or all were refused. Raises CheckpointError where all that
    were not are damaged: to begin anew then must be decided by someone who knows what is lost.
    """
    passed: list[PassedOver] = []
    damaged = False
    for found in read_checkpoints(files, directory):
        problem = found if isinstance(found, PassedOver) else None
        if isinstance(found, Checkpoint) and (reason := refuse(found)):
            passed.append(PassedOver(found.name, reason))
            continue
        if isinstance(found, Checkpoint):
            try:
                return ChosenCheckpoint(replace(found, passed_over=tuple(passed)), use(found), tuple(passed))
            except DamagedCheckpointError as error:
                if found.name not in committed_checkpoints(files, directory):
                    continue  # pruned while it was read, by the process that owns the directory
                problem = PassedOver(found.name, str(error.__cause__ or error), damaged=True)
        assert problem is not None
        if problem.newer:  # to go back behind it would silently lose what came after
            raise NewerCheckpointError(
                f"The checkpoint {directory / problem.name} can't be read: {problem.reason}."
            )
        passed.append(problem)
        damaged = True
    if damaged:
        raise CheckpointError(_no_usable_checkpoint_message(directory, passed))
    return ChosenCheckpoint(None, None, tuple(passed))


def warn_of_unused_checkpoints(directory: Path, passed_over: Iterable[PassedOver]) -> None:
    """Warn of each checkpoint that was not used, by name and with the reason."""
    for item in passed_over:
        warn_user(f"The checkpoint {directory / item.name} was passed over: {item.reason}.")


def _no_usable_checkpoint_message(directory: Path, passed: list[PassedOver]) -> str:
    listed = "\n".join(f"  {item}" for item in passed)
    return (
        f"No checkpoint in {directory} can be used:\n{listed}\n"
        "Nothing was deleted. To begin anew, move them away or choose another directory."
    )
