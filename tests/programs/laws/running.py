# SPDX-License-Identifier: Apache-2.0
"""What the laws share: a program's files in a folder, run as one process or as several ranks, and how each ended."""

import importlib.util
import json
import os
import random
import re
import sys
from functools import cache
from pathlib import Path

from programs.compose import Program
from programs.habits import Habit
from support import ranks, warm

# torch's own package for TensorBoard has some hundred modules more
IMPORTS = re.compile(r"^ *(?:from|import) (torch\.utils\.tensorboard|\w+)", re.M)

TESTS = Path(__file__).parents[2]
START = ("-c", "from programs import inside; inside.start()")

# What is written into a program for whoever looks from inside of it; programs/inside.py says what these do.
NOTED = {
    "batch noted": "note_batch(run, batch)",
    "loss noted": "note_loss(run, loss)",
    "end noted": "note_end([{{learners}}])",
    "workers": ", num_workers=WORKERS",
    "own watch": ", doctor=WATCHED",
}

# A program reads, behind a loop whose pass is over, what its bodies would have set: the next start goes on from an older save.
IS_OVER = "behind a pass through"

# Python goes on, and the exit status is 0, where an exception comes at its end.
IGNORED = "Exception ignored"

LIKE = {"fsdp": "ranks"}  # what one refuses, or can't have, the other can't have either

# A run's own watch takes 4 tenths of a short run. Of two that must end alike one has it; where a law looks at something else, none.
UNWATCHED = {"own watch": ", doctor=False"}


class ViolationError(AssertionError):
    """A law did not hold; its text is the program, and what was seen."""

    def __init__(self, program: Program, texts: dict[str, str], seen: str) -> None:
        files = "\n".join(f"# --- {name}\n{text}" for name, text in texts.items())
        super().__init__(f"{seen}\n\n{program!r}\n\n{files}")
        self.program, self.seen = program, seen


class RefusedError(Exception):
    """A program was refused, in words that a page has."""


def chance(program: Program, law: str) -> random.Random:
    """Return what draws for a law what it does to a program: the same for the same program."""
    return random.Random(f"{law} {program!r}")


def written(folder: Path, texts: dict[str, str]) -> Path:
    """Write the files of a program into a new folder, and return it."""
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def environment(**more: object) -> dict[str, str]:
    """Return the environment of a program that imports truestep, and these tests."""
    paths = os.pathsep.join(filter(None, (warm.paths(), str(TESTS))))
    return {**os.environ, "PYTHONPATH": paths} | {name: str(value) for name, value in more.items()}


def slow_to_import(folder: Path, command: tuple[str, ...]) -> str:
    """Return the packages that the program in a folder imports; by its own command it imports them itself.

    Most take twice as long to import as the program to train.
    """
    if command[0] != "-c":
        return ""
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    own = {path.stem for path in folder.iterdir()}
    return " ".join(name for name in sorted({*IMPORTS.findall(text)} - own) if is_package(name))


@cache
def is_package(name: str) -> bool:
    """Return whether a name is that of an installed package that no process has loaded when it begins."""
    if name in sys.stdlib_module_names or name in ("torch", "numpy", "truestep"):
        return False
    return importlib.util.find_spec(name) is not None


def ran(folder: Path, *command: str, **more: object):
    """Run a Python command in a folder, and return how it ended."""
    loaded = slow_to_import(folder, command)
    return warm.run(*command, cwd=folder, env=environment(**more), timeout=120, loaded=loaded)


def on_ranks(folder: Path, size: int, **more: object) -> list[ranks.Finished]:
    """Run the program in a folder as all ranks, and return how each ended."""
    port = ranks.free_port()
    places = [{"RANK": rank, "LOCAL_RANK": rank} for rank in range(size)]
    started = [
        warm.Process(
            *START,
            cwd=folder,
            env=environment(**more, **place, WORLD_SIZE=size, MASTER_PORT=port),
            loaded=slow_to_import(folder, START),
        )
        for place in places
    ]
    return ranks.finish(started, 120)


def ended(folder: Path, size: int, **more: object) -> tuple[list[int], str]:
    """Run the program in a folder as one process or several, and return the exit status of each, and what they said."""
    if size == 1:
        alone = ran(folder, *START, **more)
        return [alone.returncode], alone.stdout + alone.stderr
    finished = on_ranks(folder, size, **more)
    said = "\n".join(f"rank {rank}: {each.out}{each.error}" for rank, each in enumerate(finished))
    return [each.status for each in finished], said


def refusals(
    habit: Habit, program: Program, law: str, said: tuple[str, ...] = ("refused", "may be refused")
) -> list[str]:
    """Return the words in which a page refuses a habit under the law, or together with another habit of the program."""
    where = [f"under {each}" for each in (law, LIKE.get(law, law))]
    where += [f"with {other.name}" for other in program.habits]
    asked = [f"{word} {each}" for word in said for each in where]
    return [habit.words[each] for each in asked if each in habit.words]


def refusal(program: Program, law: str, error: str) -> bool:
    """Return whether a program was refused in words that one of its habits expects."""
    return any(line in error for habit in program.habits for line in refusals(habit, program, law))


class Trial:
    """A program that a law tries in several ways, each in a folder of its own with the same texts."""

    def __init__(self, program: Program, folder: Path, law: str, given: dict[str, str] | None = None) -> None:
        self.program, self.folder, self.law = program, folder, law
        ordered = {"workers": ""} if program.habit("source").has("is", "stream") else {}
        self.texts = program.files(NOTED | ordered | (given or {}))

    def place(self, name: str) -> Path:
        """Return the folder of this name with the program in it."""
        folder = self.folder / name
        return folder if folder.exists() else written(folder, self.texts)

    def end(self, name: str, size: int = 1, **more: object) -> Path:
        """Run the program to its end, in one process or several, and return its folder."""
        folder = self.place(name)
        statuses, said = ended(folder, size, **more)
        if any(statuses) and IS_OVER in said:
            statuses, said = ended(folder, size, **more)
        self.check(name, max(0 if each == -9 and "STOP" in more else abs(each) for each in statuses), said)
        return folder

    def check(self, name: str, status: int, said: str) -> None:
        """Raise where a program was refused, or told that it keeps the law no more, as a page says; or did not end well."""
        if refusal(self.program, self.law, said):
            raise RefusedError(said)
        if status or IGNORED in said:
            self.broken(f"{name} failed ({status}):\n{said}")

    def broken(self, seen: str) -> None:
        """Raise that the law did not hold."""
        raise ViolationError(self.program, self.texts, seen)

    def same(self, seen: list[str]) -> str:
        """Raise where differences were seen; return that the program ran."""
        if seen:
            self.broken("\n".join(seen))
        return "run"


def notes(folder: Path, rank: int = 0) -> list[dict[str, object]]:
    """Return what was noted inside of a program, line by line."""
    path = folder / f"notes-{rank}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
