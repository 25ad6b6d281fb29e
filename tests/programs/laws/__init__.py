# SPDX-License-Identifier: Apache-2.0
"""The laws: each is a function that runs a program in real processes and returns "run" or "refused", or raises what it found."""

from collections.abc import Callable
from pathlib import Path

from programs.compose import Program
from programs.laws.order import order_is_kept
from programs.laws.ownership import learners_are_apart
from programs.laws.plain import plain_is_exact
from programs.laws.ranks import divided_ranks_agree, ranks_agree
from programs.laws.reading import right_is_not_accused
from programs.laws.refused import is_refused_in_words
from programs.laws.resume import resume_is_exact
from programs.laws.running import LIKE, RefusedError, ViolationError
from programs.laws.split import split_is_bounded
from programs.laws.truthful import figures_are_true
from programs.laws.watched import watched_is_plain

LAWS: dict[str, Callable[[Program, Path], str]] = {
    "plain": plain_is_exact,
    "split": split_is_bounded,
    "order": order_is_kept,
    "resume": resume_is_exact,
    "ranks": ranks_agree,
    "fsdp": divided_ranks_agree,
    "ownership": learners_are_apart,
    "truthful": figures_are_true,
    "watched": watched_is_plain,
    "read": right_is_not_accused,
    "refused": is_refused_in_words,  # what the others leave out
}
OF_THE_ENGINE = [name for name in LAWS if name not in ("watched", "read", "refused")]

__all__ = ["LAWS", "LIKE", "OF_THE_ENGINE", "WITH", "ViolationError", "hold", "under"]


# The habits that a law needs, whatever was drawn: float64 where bounds are held, a figure, a second learner.
WITH = {
    "split": ("double_by_default",),
    "ranks": ("double_by_default",),
    "fsdp": ("double_by_default",),
    "truthful": ("evaluates_each_epoch",),
    "ownership": ("critic_in_training_mode",),
}


def under(program: Program, law: str) -> Program:
    """Return the program as a law holds it: with Truestep where the law is the engine's, and with the habits that it needs."""
    if law in OF_THE_ENGINE and program.habit("framework").name == "plain":
        program = program.with_framework(program.habit("source").words.get("with engine", "truestep"))
    for name in WITH.get(law, ()):
        program = program.with_habit(name)
    return program


def hold(law: str, program: Program, folder: Path) -> str:
    """Hold a law over a program; return "run" or "refused"."""
    try:
        return LAWS[law](under(program, law), folder)
    except RefusedError:
        return "refused"
