# SPDX-License-Identifier: Apache-2.0
"""Refused: what a page refuses under a law is refused there in the page's words, and never runs to another end."""

from pathlib import Path

from programs.compose import Program
from programs.laws.running import RefusedError, ViolationError, chance, refusals


def is_refused_in_words(program: Program, folder: Path) -> str:
    """Hold a law over a program that a page refuses there; what may be refused, by its data, may keep the law as well."""
    from programs.draws import laws_that_refuse
    from programs.laws import LAWS, under

    laws = laws_that_refuse(program)
    if not laws:  # a simpler program than the one that was drawn
        return "run"
    law = chance(program, "refused").choice(laws)
    program = under(program, law)
    try:
        LAWS[law](program, folder)
    except RefusedError:
        return "run"
    words = [line for habit in program.habits for line in refusals(habit, program, law, ("refused",))]
    if not words:
        return "run"
    raise ViolationError(
        program, program.files(), f"{law}: it ran, and a page says that it is refused: {words}"
    )
