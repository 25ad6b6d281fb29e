# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of ours beside a framework's: its files, and what these lack, in one store with checksums."""

import os
import shutil
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from truestep.checkpoints.retention import Retention
from truestep.checkpoints.store import CheckpointStore
from truestep.core.call_site import calls_what_it_reads
from truestep.core.errors import OptionError, check_number
from truestep.core.wording import a_type
from truestep.frameworks.passes import refuse_processes
from truestep.run.directory import CONFIG
from truestep.run.owner import HOLDERS, take_over_run
from truestep.run.user_state import decode_run_state, encode_run_state

_SCRATCH = ".theirs-"  # where a framework writes before the store takes it: what a kill left is removed


class KeptCheckpoint(NamedTuple):
    """A checkpoint that was read back: the framework's file or folder, and what we kept beside it."""

    path: Path
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
        self.directory = Path(directory).resolve()
        self._asked: dict[str, Any] = {"directory": str(directory), "in_vain": None, "used": False}
        self._at_end = weakref.finalize(self, _say_unused, self._asked)
        self._retention = Retention(last=keep)
        self._saved: list[int] = []

    @cached_property
    def _store(self) -> CheckpointStore:
        refuse_processes(_number_of_processes(), "this launch")
        config = self.directory / CONFIG
        if config.is_file() and '"schema_version"' in config.read_text(encoding="utf-8", errors="replace"):
            self._refuse_run()
        take_over_run(self.directory)
        store = CheckpointStore(self.directory / "checkpoints", retention=self._retention, background=False)
        HOLDERS[str(self.directory)] = self
        for left in self.directory.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left)
        return store

    def _refuse_run(self) -> None:
        raise OptionError(
            f"{self.directory} is the folder of a ts.Run, and ExactResume goes on from checkpoints of its own alone. Nothing was "
            'deleted there. Write another folder, directory="runs/exact", say.'
        )

    @cached_property
    def newest(self) -> KeptCheckpoint | None:
        """The newest sound checkpoint as this process found it, its files written out; None where there is none."""
        found = self._store.resume()
        if found is None:
            return None
        if "name" not in found.state:
            self.give_up()
            self._refuse_run()
        folder = self.directory / "from-checkpoint"
        shutil.rmtree(folder, ignore_errors=True)
        path = folder / found.state["name"]
        for name, content in found.state["files"].items():
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            content.numpy().tofile(file)
        return KeptCheckpoint(path, found.checkpoint.summary.step, decode_run_state(found.state["place"]))

    @property
    def place(self) -> dict[str, Any]:
        """What was kept beside the framework's files; nothing where there is no checkpoint."""
        return {} if self.newest is None else self.newest.place

    @property
    def step(self) -> int:
        """The step of the newest checkpoint; 0 where there is none."""
        return 0 if self.newest is None else self.newest.step

    def path_for(self, call: str) -> str | None:
        """Return the path of the newest checkpoint, for the user to write in a call; None where there is none."""
        if calls_what_it_reads(sys._getframe(2)):
            said = "exact.checkpoint is a path, None at the first start, and no method to call."
            raise OptionError(f"{said} Write {call}.")
        if self.newest is None:
            self.say_at_end(
                f"ExactResume({self._asked['directory']!r}) was made, and no trainer began with it, so nothing was saved. Write "
                "Trainer(..., callbacks=[exact])."
            )
        return None if self.newest is None else str(self.newest.path)

    def say_going_on(self) -> None:
        """Say from where a resumed training goes on."""
        if self.newest is not None:
            sys.stderr.write(f"truestep: going on from step {self.newest.step} of {self.directory}\n")

    def say_at_end(self, words: str) -> None:
        """Say so at the end, unless a training has begun with this by then."""
        self._asked["in_vain"] = words

    def take_note_of_use(self) -> None:
        """Take note that a training has begun with this."""
        self._asked["used"] = True

    @contextmanager
    def saving(self, step: int, place: dict[str, Any]) -> Iterator[Path]:
        """Give a folder, and save what the framework put there, one file or one folder, with the place."""
        self._store.wait()  # makes the directory
        with TemporaryDirectory(prefix=_SCRATCH, dir=self.directory) as scratch:
            yield Path(scratch)
            (theirs,) = Path(scratch).iterdir()
            self.keep(theirs, step, place)

    def keep(self, theirs: Path, step: int, place: dict[str, Any]) -> None:
        """Save a file or folder of the framework's, and the place."""
        inside = (each for each in sorted([theirs, *theirs.rglob("*")]) if each.is_file())
        files = {each.relative_to(theirs).as_posix(): _bytes_of(each) for each in inside}
        self._store.save(step, {"name": theirs.name, "files": files, "place": encode_run_state(place)})
        self._saved.append(step)

    def say_never_saved(self, option: str, end: int, least: int) -> None:
        """Say at a training's last step that nothing was saved before it, as the option asks for more than there was of it."""
        if self.newest is None and not any(each < end for each in self._saved):
            sys.stderr.write(
                f"truestep: this training ended before its first save was due ({option}), so a kill would have lost all of it. "
                f"Write {option.split('=', maxsplit=1)[0]}={max(1, least)}, say.\n"
            )

    def give_up(self) -> None:
        """Let go of the directory."""
        self._at_end()
        vars(self).pop("newest", None)
        if (store := vars(self).pop("_store", None)) is not None:
            store.close()


def _number_of_processes() -> int:
    """Return how many processes a launcher says that it has started: each of them would take the directory."""
    number = os.environ.get("WORLD_SIZE", "")
    return int(number) if number.isdecimal() else 1


def _say_unused(asked: dict[str, Any]) -> None:
    """Say why nothing was saved: a Trainer found no checkpoint of its own to begin with, or none was given the callback."""
    if not asked["used"] and "valid checkpoint" in str(getattr(sys, "last_value", "")):
        sys.stderr.write(
            "truestep: resume_from_checkpoint asks for a checkpoint of the Trainer's own, and at the first start there is none. "
            "Write trainer.train(resume_from_checkpoint=exact.checkpoint), which is None then.\n"
        )
    if asked["in_vain"] and not asked["used"] and not hasattr(sys, "last_value") and sys.exception() is None:
        sys.stderr.write(f"truestep: {asked['in_vain']}\n")


def _bytes_of(file: Path) -> torch.Tensor:
    """Return the bytes of a file, mapped and not read: the store writes them on."""
    size = file.stat().st_size
    if not size:
        return torch.empty(0, dtype=torch.uint8)
    return torch.from_file(str(file), shared=False, size=size, dtype=torch.uint8)
