# SPDX-License-Identifier: Apache-2.0
"""What lies at a path that holds no run: saved by another library, weights alone, or kept by `ExactResume`. Imports no torch."""

import os
from collections.abc import Iterator
from pathlib import Path

from truestep.checkpoints.checkpoint_names import FOLDER, committed_checkpoints
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.core.errors import did_you_mean_path
from truestep.core.text_formatting import first_few

_DEPTH = 4  # lightning_logs/version_0/checkpoints
_MOST_FOLDERS = 500  # a folder of data is not searched to its ground
_TRAINER, _ACCELERATE = (
    "trainer_state.json",
    "random_states_",
)  # what alone these libraries write into a checkpoint
_WEIGHTS = (".safetensors", ".pth", ".pt", ".bin")
_TAKEN_BY = {
    "transformers' Trainer": "trainer.train(resume_from_checkpoint={!r})",
    "Accelerate": "accelerator.load_state({!r})",
    "Lightning": "trainer.fit(model, loader, ckpt_path={!r})",
    "": "ts.load_weights(model, {!r})",
}
"""The call that takes what each has saved; the first that is found is told of, and weights alone last."""


def describe_path_without_run(path: Path) -> str:
    """Return what lies at a path where no run is, as a sentence behind a blank; nothing where that is unknown."""
    if not path.is_dir():
        kept = next(_library_of_weights_file(path), None) if path.is_file() else None
        if kept is not None:
            return f" It is {_describe_foreign_files(kept[0], 1)}, which {_TAKEN_BY[kept[0]].format(str(path))} takes."
        return (
            f"{'' if path.exists() else did_you_mean_path(path)} Write the folder of a run: runs/digits, say."
        )
    if ours := _truestep_runs_below(path):
        return (
            f" Checkpoints of Truestep lie in {first_few([str(each) for each in ours], 3)}: "
            f"`truestep checkpoints list {ours[0]}` lists them."
        )
    found: dict[str, list[Path]] = {}
    for whose, place in _foreign_checkpoints_below(path):
        found.setdefault(whose, []).append(place)
    for whose, call in _TAKEN_BY.items():
        if places := found.get(whose):
            newest = max(places, key=_modification_time)
            return f" It holds {_describe_foreign_files(whose, len(places))}, which {call.format(str(newest))} takes."
    return ""


def has_weights_extension(path: Path) -> bool:
    """Whether a file holds weights, by its ending."""
    return path.is_file() and any(_library_of_weights_file(path))


def _describe_foreign_files(whose: str, count: int) -> str:
    what = f"checkpoint{'s' * (count > 1)} of {whose}" if whose else f"file{'s' * (count > 1)} of weights"
    return f"{count} {what}" if count > 1 else f"a {what}"


def _truestep_runs_below(path: Path) -> list[Path]:
    """Return the folders with checkpoints of ours at a path and below it."""
    files = CheckpointFiles()
    inside = (here for here, folders, _ in _walk_some_folders(path) if FOLDER in folders)
    return [here for here in inside if committed_checkpoints(files, here / FOLDER)]


def _foreign_checkpoints_below(path: Path) -> Iterator[tuple[str, Path]]:
    for here, _, names in _walk_some_folders(path):
        if _TRAINER in names:
            yield "transformers' Trainer", here
        if any(each.startswith(_ACCELERATE) for each in names):
            yield "Accelerate", here
        for name in names:
            yield from _library_of_weights_file(here / name)


def _library_of_weights_file(path: Path) -> Iterator[tuple[str, Path]]:
    if path.suffix.lower() == ".ckpt":
        yield "Lightning", path
    elif path.suffix.lower() in _WEIGHTS:
        yield "", path


def _walk_some_folders(path: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    for number, (here, folders, names) in enumerate(os.walk(path)):
        if number == _MOST_FOLDERS:
            return
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield Path(here), folders[:], names
        if len(Path(here).relative_to(path).parts) >= _DEPTH:
            folders.clear()


def _modification_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0
