# SPDX-License-Identifier: Apache-2.0
"""What there is in a run, for people and programs that look at it from outside. Imports no torch."""

import json
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from truestep.checkpoints.checkpoint import Checkpoint, PassedOver
from truestep.checkpoints.checkpoint_lookup import checkpoints_folder, read_newest_checkpoint
from truestep.checkpoints.checkpoint_names import committed_checkpoints, sequence_of_checkpoint_name
from truestep.checkpoints.checkpoint_removal import remove_checkpoints, split_by_retention
from truestep.checkpoints.checkpoint_selection import read_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.foreign_formats import describe_path_without_run
from truestep.checkpoints.lock import RunLock
from truestep.checkpoints.manifest import MANIFEST_NAME, Manifest
from truestep.checkpoints.retention import Retention
from truestep.checkpoints.state_codec import saved_tensor_name, state_children
from truestep.core.errors import CheckpointError, names_hint
from truestep.core.metric_direction import MEASURED, best_mode_of_metric

_MODES: dict[str, Literal["max", "min"]] = {"highest": "max", "lowest": "min"}
_NEWEST = ("last", "latest", "newest")


def checkpoint_overview(
    directory: Path, files: CheckpointFiles | None = None
) -> list[Checkpoint | PassedOver]:
    """Return the checkpoints of a run, newest first and damaged ones too; or the one `directory` is."""
    files = files or CheckpointFiles()
    if (directory / MANIFEST_NAME).exists():
        return [Checkpoint.open(directory, files)]
    return list(read_checkpoints(files, _existing_checkpoints_folder(directory)))


def _existing_checkpoints_folder(directory: Path) -> Path:
    """Return the folder of a run's checkpoints; raises CheckpointError where there is no folder at all."""
    folder = checkpoints_folder(directory)
    if not folder.is_dir():
        what = "is a file, not a run's directory" if directory.exists() else "does not exist"
        raise CheckpointError(
            f"{directory} {what}, so it has no checkpoints.{describe_path_without_run(directory)}"
        )
    return folder


def select_checkpoint(directory: Path, which: str | None, files: CheckpointFiles | None = None) -> Checkpoint:
    """Return the checkpoint of a step or a name, that of the "highest METRIC" or "lowest METRIC", or the newest sound one."""
    if which is None:
        return read_newest_checkpoint(directory, Checkpoint.verify, files)[0]
    found = checkpoint_overview(directory, files)
    extreme, _, metric = which.partition(" ")
    if extreme in _MODES and metric:
        retention = Retention(best=1, best_metric=metric, best_mode=_MODES[extreme])
        return _best_checkpoint_by_metric(
            directory, [item for item in found if isinstance(item, Checkpoint)], retention
        )
    names = {item.name: item for item in reversed(found)}
    steps = {item.name.rpartition("-")[2]: item for item in reversed(found)}  # of one step, the newest
    numbers = {str(sequence_of_checkpoint_name(item.name)): item for item in found}
    item = names.get(which) or steps.get(which) or numbers.get(which)
    if item is None:
        raise CheckpointError(
            f"{directory} has no checkpoint {which!r}. {_available_checkpoints_hint(which, found)}"
        )
    if isinstance(item, PassedOver):
        raise CheckpointError(f"The checkpoint {item.name} can't be used: {item.reason}.")
    return item


def _available_checkpoints_hint(which: str, found: Sequence[Checkpoint | PassedOver]) -> str:
    """Return what to write where no checkpoint is called so."""
    metrics = (name for item in found if isinstance(item, Checkpoint) for name in item.metrics)
    known = sorted({name for name in metrics if name.rpartition("/")[2] not in MEASURED})
    ways = [f"{'lowest' if best_mode_of_metric(name) == 'min' else 'highest'} {name}" for name in known]
    names = {item.name for item in found}
    close = get_close_matches(which, [*_NEWEST, "best", *ways, *names], n=1, cutoff=0.7)
    meant = dict(zip(known, ways, strict=True)).get(which) or next(iter(close), None)
    if meant in _NEWEST:
        return "The newest sound one is taken where none is named: leave it out."
    if meant in ways:
        return f'Did you mean "{meant}"?'
    if meant != "best":
        return names_hint(which, names)
    if not known:
        return "Nothing was logged when they were saved, so none is the best. The newest is taken where none is named."
    written = ", ".join(f'"{way}"' for way in ways)
    return f"Say by which metric, and which way is better: {written}."


def _best_checkpoint_by_metric(directory: Path, found: list[Checkpoint], retention: Retention) -> Checkpoint:
    best = retention.best_of([item.summary for item in found if item.summary.complete])
    if not best:
        known = {name for item in found for name in item.metrics}
        metric = retention.best_metric or ""
        raise CheckpointError(
            f"{directory} has no checkpoint with {metric!r} logged. {names_hint(metric, known)}"
        )
    return next(item for item in found if item.summary is best[0])


def checkpoint_contents(checkpoint: Checkpoint) -> dict[str, str]:
    """Return every leaf of a state by its path: of a tensor dtype and shape, of others the value."""
    found: dict[str, str] = {}
    _collect_leaf_descriptions(checkpoint.manifest.state, (), checkpoint.manifest, found)
    return found


def _collect_leaf_descriptions(
    node: Any, path: tuple[str | int, ...], manifest: Manifest, found: dict[str, str]
) -> None:
    name = saved_tensor_name(path)
    if isinstance(node, dict) and "tensor" in node:
        saved = manifest.tensor_name(node)
        entry = manifest.tensors[saved]
        shape = node.get("shape", entry.shape)
        tie = f", shared with {saved}" if saved != name else ""
        found[name] = f"{entry.dtype} {list(shape)}{tie}"
        return
    children = state_children(node)
    for key, child in (children or {}).items():
        _collect_leaf_descriptions(child, (*path, key), manifest, found)
    if children is None:
        found[name] = node["float"] if isinstance(node, dict) else json.dumps(node)


def prune_checkpoints_in(directory: Path, retention: Retention, *, dry_run: bool = False) -> list[str]:
    """Remove what a run is not to keep, and return the names; refused while a process trains in it.

    Each one to be kept is read from end to end before anything is removed: a damaged one counts for nothing. Raises
    CheckpointError where the best are to stay and no checkpoint has the metric.
    """
    try:
        return _remove_by_retention(directory, retention, dry_run=dry_run)
    except OSError as error:
        raise CheckpointError(f"The checkpoints of {directory} could not be pruned: {error}.") from error


def _remove_by_retention(directory: Path, retention: Retention, *, dry_run: bool) -> list[str]:
    files, folder = CheckpointFiles(), _existing_checkpoints_folder(directory)
    if not committed_checkpoints(files, folder):
        return []  # and no lock file is left in a folder that is no run's
    lock = RunLock(folder, files)
    try:
        if retention.best:
            _best_checkpoint_by_metric(
                directory,
                [item for item in read_checkpoints(files, folder) if isinstance(item, Checkpoint)],
                retention,
            )
        damaged: dict[str, str] = {}
        # What is damaged counts for nothing, so another moves up among those to keep, and has to be read as well.
        while True:
            kept, rest = split_by_retention(files, folder, retention, damaged)
            found = {item.name: reason for item in kept if (reason := find_checkpoint_damage(item))}
            if not found:
                break
            damaged |= found
        names = [item.name for item in rest]
        if not dry_run:
            remove_checkpoints(files, folder, names)
        return names
    finally:
        lock.release()


def find_checkpoint_damage(checkpoint: Checkpoint) -> str | None:
    """Read a checkpoint from end to end and return what is wrong with it."""
    try:
        checkpoint.verify()
    except CheckpointError as error:
        return str(error.__cause__ or error)
    return None
