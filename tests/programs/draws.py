# SPDX-License-Identifier: Apache-2.0
"""Draws of habits, one for each slot, so that every two of them can stand in one program."""

from importlib.util import find_spec

from hypothesis import strategies as st
from programs.compose import Program
from programs.habits import Habit, slots


def suited(habits, chosen) -> list[Habit]:
    """Return those of the habits that go with all that were chosen."""
    return [habit for habit in habits if all(habit.suits(other) for other in chosen)]


def filled(chosen: list[Habit]) -> Program:
    """Return the program of the habits chosen, with the plainest for each slot that is left."""
    for name, habits in slots().items():
        if name not in {habit.slot for habit in chosen}:
            chosen = [*chosen, suited(habits, chosen)[0]]
    order = list(slots())
    return Program(tuple(sorted(chosen, key=lambda habit: order.index(habit.slot))))


def takes_part(habit: Habit, law: str | None) -> bool:
    """Return whether a habit is drawn for a law: it can be written there, and no kept program shows that it fails."""
    if law is not None and "package" in habit.words and find_spec(habit.words["package"]) is None:
        return False
    return not habit.has("not under", str(law)) and f"fails under {law}" not in habit.words


def runs_in(habit: Habit, chosen: list[Habit]) -> bool:
    """Return whether no kept program shows that a habit fails in the framework that was chosen."""
    frameworks = [chosen[0].name, *chosen[0].words.get("like", "").split()] if chosen else []
    return not any(f"fails under {name}" in habit.words for name in frameworks)


@st.composite
def programs(draw, law: str | None = None) -> Program:
    """Return a strategy for programs, of all habits or of those that take part in a law."""
    chosen: list[Habit] = []
    for habits in slots().values():
        allowed = [habit for habit in habits if takes_part(habit, law) and runs_in(habit, chosen)]
        chosen.append(draw(st.sampled_from(suited(allowed, chosen))))
    return Program(tuple(chosen))
