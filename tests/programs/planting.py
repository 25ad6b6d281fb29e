# SPDX-License-Identifier: Apache-2.0
"""One mistake planted into a right program, so that it is known what the doctor should say of it.

A plant is a text file as a habit is. It says in a sentence what it is, and of which kind: those that maintainers fixed
(benchmarks/doctor/corpus/work). It names the codes of which any is right, or none where there is no check, and the habits that it
needs; then come pieces of source text, each with what takes its place.
"""

import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, islice

from programs.compose import Program
from programs.draws import choice_by, filled, installed
from programs.habits import HERE, named

PLANTED = HERE / "planted"


@dataclass(frozen=True, eq=False)
class Plant:
    """A mistake, and what it takes to plant it."""

    name: str
    about: str
    words: dict[str, str]
    edits: tuple[tuple[str, str], ...]

    @property
    def kind(self) -> str:
        """Return what the fix is called that it is modelled on."""
        return self.words["kind"]

    @property
    def codes(self) -> set[str]:
        """Return the codes of which any names it; none where no check is made for it."""
        return set(self.words["code"].split()) - {"none"}

    def into(self, program: Program) -> Program | None:
        """Return the program with the mistake in it, or None where it has no place."""
        habits = tuple(
            replace(each, pieces={name: self.edited(text) for name, text in each.pieces.items()})
            for each in program.habits
        )
        changed = [
            each.name for old, each in zip(program.habits, habits, strict=True) if old.pieces != each.pieces
        ]
        wrong = Program(habits)
        return wrong if changed and wrong.files() != program.files() and is_python(wrong) else None

    def edited(self, text: str) -> str:
        """Return a piece of source text with what is planted there: where whole names stand, and no ends of longer ones."""
        for old, new in self.edits:
            begin = r"(?<!\w)" if old[:1].isidentifier() else ""
            text = re.sub(begin + re.escape(old), lambda _, new=new: new, text)
        return text


def is_python(program: Program) -> bool:
    """Return whether all files of a program can be compiled."""
    try:
        for name, text in program.files().items():
            compile(text, name, "exec")
    except SyntaxError:
        return False
    return True


@cache
def plants() -> tuple[Plant, ...]:
    """Return every plant."""
    found = []
    for path in sorted(PLANTED.glob("*.txt")):
        head, *rest = re.split(r"^== (?:old|new) ==\n", path.read_text("utf-8"), flags=re.M)
        about, *lines = head.strip().splitlines()
        words = dict(re.split(r":\s*", line, maxsplit=1) for line in lines)
        texts = [text.removesuffix("\n") for text in rest]
        found.append(Plant(path.stem, about, words, tuple(zip(texts[::2], texts[1::2], strict=True))))
    return tuple(found)


@cache
def planted(plant: Plant, number: int, seed: int = 0) -> list[Program]:
    """Return so many different programs in plain PyTorch with the mistake."""
    needed = [named(name) for name in plant.words["habits"].split()]
    framework = [] if any(habit.slot == "framework" for habit in needed) else [named("plain")]

    def tried():
        for each in islice(count(), 40 * number):
            program = filled([*framework, *needed], choice_by(plant.name, seed, each))
            if program is not None and all(map(installed, program.habits)):
                yield plant.into(program)

    return list(islice((wrong for wrong in tried() if wrong is not None), number))
