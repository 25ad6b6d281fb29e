# SPDX-License-Identifier: Apache-2.0
"""What the three ExactResume share: checkpoints of ours beside a framework's, with its files and what these lack, and their use."""

import os
import shutil
import sys
import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn

import torch

from truestep.checkpoints.retention import Retention
from truestep.checkpoints.store import CheckpointStore
from truestep.core.call_site import is_read_attribute_called
from truestep.core.errors import OptionError, check_number
from truestep.core.missing_attribute_hints import HelpfulAttributes
from truestep.core.text_formatting import a_type
from truestep.frameworks.attributes import PlainAttributes
from truestep.frameworks.repeatable_loader_passes import KeyedPasses, refuse_processes
from truestep.frameworks.training_start_check import TrainingStart, write_to_stderr
from truestep.run.directory import CONFIG
from truestep.run.loop_random import loop_random_state, set_loop_random_state
from truestep.run.owning_process import HOLDERS, take_over_run_directory
from truestep.run.user_state import decode_run_state, encode_run_state

_SCRATCH = ".theirs-"  # where a framework writes before the store takes it: what a kill left is removed


class KeptCheckpoint(NamedTuple):
    """A checkpoint that was read back: the framework's file or folder, and what we kept beside it."""

    path: Path | None
    step: int
    place: dict[str, Any]


class KeptCheckpoints:
    """The checkpoints in a directory; at every instant after the first save a whole one is there.

    A checkpoint holds all bytes of what the framework saved, so that neither half a save nor a changed file is gone on from.
    """

    def __init__(self, directory: str | Path, keep: int) -> None:
        check_number("ExactResume", "keep", keep, example=2, least=1)
        is_name = isinstance(directory, str | Path) and bool(str(directory).strip())
        if not is_name or Path(directory).is_file():
            given = repr(directory) if isinstance(directory, str | Path | int | None) else a_type(directory)
            raise OptionError(
                f"ExactResume was given {given} for its directory{', which names a file' if is_name else ''}. It needs a "
                'folder for its checkpoints, and only them. Write directory="runs/exact", say.'
            )
        self.directory, self.given = Path(directory).resolve(), str(directory)
        self._retention = Retention(last=keep)
        self.saved_at: list[int] = []

    @cached_property
    def _checkpoint_store(self) -> CheckpointStore:
        number = os.environ.get("WORLD_SIZE", "")  # as launchers say: each process would take the directory
        refuse_processes(int(number) if number.isdecimal() else 1, "this launch")
        config = self.directory / CONFIG
        if config.is_file() and '"schema_version"' in config.read_text(encoding="utf-8", errors="replace"):
            self._refuse_run_directory()
        take_over_run_directory(self.directory)
        store = CheckpointStore(self.directory / "checkpoints", retention=self._retention, background=False)
        HOLDERS[str(self.directory)] = self
        for left in self.directory.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left)
        return store

    def _refuse_run_directory(self) -> NoReturn:
        raise OptionError(
            f"{self.directory} is the folder of a ts.Run, and ExactResume goes on from checkpoints of its own alone. Nothing was "
            'deleted there. Write another folder, directory="runs/exact", say.'
        )

    @cached_property
    def newest(self) -> KeptCheckpoint:
        """The newest sound checkpoint as this process found it, its files written out; an empty one where there is none."""
        found = self._checkpoint_store.resume()
        if found is None:
            return KeptCheckpoint(None, 0, {})
        if "name" not in found.state:
            self.give_up()
            self._refuse_run_directory()
        folder = self.directory / "from-checkpoint"
        shutil.rmtree(folder, ignore_errors=True)
        path = folder / found.state["name"]
        for name, content in found.state["files"].items():
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            content.numpy().tofile(file)
        return KeptCheckpoint(path, found.checkpoint.summary.step, decode_run_state(found.state["place"]))

    @cached_property
    def begun(self) -> TrainingStart:
        """What the training was begun with that goes on from there."""
        return TrainingStart(self.directory, self.newest.step, self.newest.place)

    def scratch(self) -> TemporaryDirectory[str]:
        """Return a folder for what a framework saves."""
        self._checkpoint_store.wait()  # makes the directory
        return TemporaryDirectory(prefix=_SCRATCH, dir=self.directory)

    def keep(self, theirs: Path, step: int, place: dict[str, Any]) -> None:
        """Save a file or folder of the framework's, and the place."""
        inside = (each for each in sorted([theirs, *theirs.rglob("*")]) if each.is_file())
        files = {each.relative_to(theirs).as_posix(): _map_file_bytes(each) for each in inside}
        self._checkpoint_store.save(
            step, {"name": theirs.name, "files": files, "place": encode_run_state(place)}
        )
        self.saved_at.append(step)

    def give_up(self) -> None:
        """Let go of the directory."""
        for name in ("newest", "begun"):
            vars(self).pop(name, None)
        if (store := vars(self).pop("_checkpoint_store", None)) is not None:
            store.close()


class ResumableTraining(HelpfulAttributes):
    """A training that is kept in a directory, and goes on from there."""

    _instead = "get_extra_state(self) and set_extra_state(self, state) into the class."

    def __init__(
        self, directory: str | Path, keep: int, skipped: Callable[[Any, int], int | None] | None = None
    ) -> None:
        self._kept = KeptCheckpoints(directory, keep)
        self._use: dict[str, Any] = {"in_vain": None, "used": False}
        self._at_end = weakref.finalize(self, _report_unused, self._use)
        self._passes = KeyedPasses(*[skipped] if skipped else [])
        self._attributes = PlainAttributes({})
        self._place: dict[str, Any] = {}
        """What is to be put back at the first batch."""

    def _begin_keyed_passes(self) -> None:
        """Have passes be keyed, from the newest checkpoint's place on where there is one."""
        self._place = self._kept.newest.place
        self._passes.begin(self._place, self._kept.begun.seed())
        if self._place:
            write_to_stderr(f"going on from step {self._kept.newest.step} of {self._kept.directory}")

    def _restore_at_first_batch(
        self, device: torch.device | None, steps_of: Callable[[Any], float | None] | None = None
    ) -> None:
        """Put back what was kept, at the first batch of a resumed run: the code before may have drawn."""
        self._kept.begun.check_at_first_batch(steps_of)
        if device is not None:
            set_loop_random_state(self._place["random"], device)
        self._attributes.put_back(self._place.get("attributes", {}))

    def _current_place(self, batches: int, device: torch.device | None, **more: Any) -> dict[str, Any]:
        """Return all that a framework's checkpoint lacks, when so many batches of the pass are done."""
        place = {**self._passes.place(batches), **self._kept.begun.facts, **more}
        place["attributes"] = self._attributes.changed(self._instead)
        return place if device is None else {**place, "random": loop_random_state(device)}

    def _never_saved_message(self, option: str, least: int) -> str:
        return (
            f"this training ended before its first save was due ({option}), so a kill would have lost all of it. "
            f"Write {option.partition('=')[0]}={max(1, least)}, say."
        )

    def _report_never_saved(self, option: str, end: int, least: int) -> None:
        """Say at a training's last step that nothing was saved before it, as the option asks for more than there was of it."""
        if self._kept.newest.path is None and not any(each < end for each in self._kept.saved_at):
            write_to_stderr(self._never_saved_message(option, least))

    def _release_directory(self) -> None:
        """Let go of the directory."""
        self._at_end()
        self._passes.end()
        self._kept.give_up()


class ResumeCallback(ResumableTraining):
    """One that a Trainer is given among its callbacks."""

    _call: str
    _models: tuple[Any, ...] = ()

    @property
    def checkpoint(self) -> str | None:
        """The path for the Trainer's call; None where nothing is saved yet."""
        if is_read_attribute_called(sys._getframe(1)):
            said = "exact.checkpoint is a path, None at the first start, and no method to call."
            raise OptionError(f"{said} Write {self._call}.")
        self._kept.begun.model(*self._models)
        if self._kept.newest.path is None:
            self._use["in_vain"] = (
                f"ExactResume({self._kept.given!r}) was made, and no trainer began with it, so nothing was saved. Write "
                "Trainer(..., callbacks=[exact])."
            )
        return None if self._kept.newest.path is None else str(self._kept.newest.path)

    def _join_trainer(self, processes: int, library: str, callbacks: list[Any]) -> None:
        """Begin in a Trainer; refuse several in it, as one alone can keep the place, and several processes."""
        callbacks = [each for each in callbacks if type(each) is type(self)]
        if callbacks[1:]:
            what = "the same ExactResume twice" if callbacks[0] is callbacks[1] else "two ExactResume"
            raise OptionError(
                f"The Trainer was given {what}, and one keeps all of a training, in one directory. Write callbacks=[exact], and "
                "keep=3 for more checkpoints."
            )
        self._use["used"] = True
        refuse_processes(processes, library)


def _report_unused(use: dict[str, Any]) -> None:
    """Say why nothing was saved: a Trainer found no checkpoint of its own to begin with, or none was given the callback."""
    if not use["used"] and "valid checkpoint" in str(getattr(sys, "last_value", "")):
        write_to_stderr(
            "resume_from_checkpoint asks for a checkpoint of the Trainer's own, and at the first start there is none. "
            "Write trainer.train(resume_from_checkpoint=exact.checkpoint), which is None then."
        )
    if use["in_vain"] and not use["used"] and not hasattr(sys, "last_value") and sys.exception() is None:
        write_to_stderr(use["in_vain"])


def _map_file_bytes(file: Path) -> torch.Tensor:
    """Return the bytes of a file, mapped and not read: the store writes them on."""
    size = file.stat().st_size
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    return torch.from_file(str(file), shared=False, size=size, dtype=torch.uint8)
