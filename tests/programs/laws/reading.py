# SPDX-License-Identifier: Apache-2.0
"""The doctor by reading: `truestep read` accuses no right program of a bug."""

from pathlib import Path

from programs.compose import Program
from programs.laws.running import ViolationError

from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_texts


def findings_of(texts: dict[str, str]):
    """Return what is found by reading the files of a program together."""
    return read_texts({name: text for name, text in texts.items() if name.endswith(".py")}).findings


def right_is_not_accused(program: Program, folder: Path) -> str:
    """Hold what reading says of a program: nothing is a bug but what its habits make wrong together."""
    del folder
    texts = program.files()
    accused = [each for each in findings_of(texts) if each.severity is Severity.BUG]
    seen = [f"accused: {each}" for each in accused if each.code not in program.mistakes()]
    if seen:
        raise ViolationError(program, texts, "\n".join(seen))
    return "run"
