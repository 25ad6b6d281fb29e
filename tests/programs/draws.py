# SPDX-License-Identifier: Apache-2.0
"""Draws of habits, one for each slot, so that every two of them can stand in one program.

A draw has a number. It begins with two habits of different lists, which the number says, so that every pair is drawn in as many
draws as there are pairs and no habit is rare; the other slots are filled around them by chance.
"""

import random
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import combinations

from programs.compose import Program
from programs.habits import Habit, all_habits, slots
from programs.laws import LAWS, LIKE, OF_THE_ENGINE, WITH, under
from programs.laws.running import refusals

ENGINES = ("plain", "truestep", "truestep_with_block", "truestep_by_steps")  # to these every law can be held
MAX_TRIED = 100  # pairs that a pair is tried with


@cache
def beside(habit: Habit) -> frozenset[Habit]:
    """Return the habits that can stand in one program with a habit."""
    return frozenset(other for other in all_habits() if habit.suits(other))


def suited(habits, chosen) -> list[Habit]:
    """Return those of the habits that go with all that were chosen."""
    allowed = frozenset(all_habits()).intersection(*map(beside, chosen))
    return [habit for habit in habits if habit in allowed]


def filled(chosen: list[Habit], choose: Callable[[list[Habit]], Habit] | None = None) -> Program | None:
    """Return the program of the habits chosen, with one of each slot that is left, its plainest if nobody chooses.

    None if nothing that a slot has goes with the others.
    """
    taken, left = {habit.slot for habit in chosen}, frozenset(all_habits()).intersection(*map(beside, chosen))
    for name, habits in slots().items():
        if name in taken:
            continue
        allowed = [habit for habit in habits if habit in left]
        if not allowed:
            return None
        habit = choose(allowed) if choose else allowed[0]
        chosen, left = [*chosen, habit], left & beside(habit)
    order = list(slots())
    return Program(tuple(sorted(chosen, key=lambda habit: order.index(habit.slot))))


@cache
def installed(habit: Habit) -> bool:
    """Return whether what a habit needs is installed."""
    return "package" not in habit.words or find_spec(habit.words["package"]) is not None


def can_be_filled(chosen: tuple[Habit, ...]) -> bool:
    """Return whether each slot that is left has a habit that goes with those chosen."""
    taken, left = {habit.slot for habit in chosen}, frozenset.intersection(*map(beside, chosen))
    return all(name in taken or not left.isdisjoint(habits) for name, habits in slots().items())


@cache
def pairs() -> list[tuple[Habit, ...]]:
    """Return every two habits of different lists that can stand in one program, in a mixed order."""
    found = [pair for pair in combinations(all_habits(), 2) if pair[0].list != pair[1].list]
    found = [pair for pair in found if pair[0].suits(pair[1]) and can_be_filled(pair)]
    random.Random(0).shuffle(found)
    return found


def go_together(first: tuple[Habit, ...], second: tuple[Habit, ...]) -> bool:
    """Return whether one program can have two pairs, which share no habit (one of few pairs would be drawn less often)."""
    return (
        not {habit.slot for habit in first} & {habit.slot for habit in second}
        and all(a in beside(b) for a in first for b in second)
        and can_be_filled((*first, *second))
    )


@cache
def beginnings() -> list[tuple[Habit, ...]]:
    """Return what draws begin with: each pair once, with another that goes with it where there is one, in a mixed order."""
    found: list[tuple[Habit, ...]] = []
    waiting: list[tuple[Habit, ...]] = []
    for pair in pairs():
        other = next((each for each in waiting[:MAX_TRIED] if go_together(each, pair)), None)
        if other is None:
            waiting.append(pair)
        else:
            waiting.remove(other)
            found.append((*other, *pair))
    found += waiting
    random.Random(0).shuffle(found)
    return found


def choice_by(drawn: random.Random) -> Callable[[list[Habit]], Habit]:
    """Return what chooses one of several habits: any of them, but four of ten frameworks are of those that all laws take.

    What takes long is in the draws of its pairs alone.
    """

    def choose(allowed: list[Habit]) -> Habit:
        allowed = [habit for habit in allowed if "seldom" not in habit.words] or allowed
        engines = [habit for habit in allowed if habit.name in ENGINES]
        return drawn.choice(engines if engines and drawn.random() < 0.4 else allowed)

    return choose


def drawn_program(number: int, seed: int = 0) -> Program:
    """Return the program of a number: whatever is installed."""
    drawn = random.Random(f"{seed} {number}")
    first = beginnings()[number % len(beginnings())]
    for _ in range(100):  # what was chosen may leave nothing for a slot
        if (program := filled(list(first), choice_by(drawn))) is not None:
            return program
    return drawn_program(number + 1, seed)


@cache
def takes_part(habit: Habit, law: str, framework: Habit) -> bool:
    """Return whether a habit is held to a law: it can be written there, and no kept program shows that it fails."""
    laws = {law, LIKE.get(law, law)}
    failing = {*laws, framework.name, *framework.words.get("like", "").split()}
    return installed(habit) and not (
        any(habit.has("not under", each) for each in laws)
        or any(f"fails under {each}" in habit.words for each in failing)
    )


def fitted(program: Program, law: str, *, refused: bool = True) -> Program | None:
    """Return the program as a law can hold it: habits that can't stand there become the plainest; None for no program.

    Those that a page refuses there do, too, with `refused=False`.
    """
    framework = program.habit("framework")
    if not takes_part(framework, law, framework) or (law in OF_THE_ENGINE and framework.name not in ENGINES):
        return None
    held = under(program, law)
    framework = held.habit("framework")
    if not takes_part(framework, law, framework):
        return None
    asked = {framework.name, *WITH.get(law, ())}
    kept = [habit for habit in held.habits if habit.name in asked]
    for habit in held.habits:
        fits = takes_part(habit, law, framework) and all(habit.suits(each) for each in kept)
        fits = fits and (refused or not is_refused(habit, held, law))
        kept += [habit] if fits and habit not in kept else []
    return filled(kept)


def is_refused(habit: Habit, program: Program, law: str) -> bool:
    """Return whether a page refuses a habit under a law, or beside another habit of the program."""
    return program.habit("framework").name.startswith("truestep") and bool(refusals(habit, program, law))


def laws_that_refuse(program: Program) -> list[str]:
    """Return the engine's laws that can be held over a program as it is, and that a page refuses it under."""
    return [law for law in OF_THE_ENGINE if fitted(program, law) == program and refuses(program, law)]


def refuses(program: Program, law: str) -> bool:
    """Return whether a page refuses a program under a law."""
    return any(is_refused(habit, program, law) for habit in program.habits)


def drawn_under(program: Program, law: str) -> Program | None:
    """Return the program as it is drawn for a law: without what a page refuses there, or, for the law Refused, with it."""
    if law != "refused":
        return fitted(program, law, refused=False)
    found = [held for each in OF_THE_ENGINE if (held := fitted(program, each)) and refuses(held, each)]
    return random.Random(f"refused {program!r}").choice(found) if found else None


def trials(seed: int, count: int, laws_each: int = 3) -> Iterator[tuple[int, str, Program]]:
    """Return what a slice of draws holds: the number of each draw, and each of its laws with the program as it is held there."""
    for number in range(seed * count, (seed + 1) * count):
        program = drawn_program(number, seed)
        held = {law: found for law in LAWS if (found := drawn_under(program, law)) is not None}
        drawn = random.Random(f"laws {seed} {number}")
        for law in drawn.sample(list(held), min(laws_each, len(held))):
            yield number, law, held[law]


def plainer(program: Program) -> Iterator[Program]:
    """Return the program with one habit after the other in the place of the plainest of its slot."""
    for habit in program.habits:
        if "plainest" not in habit.words:
            others = [each for each in program.habits if each is not habit]
            plainest = slots()[habit.slot][0]
            if all(plainest.suits(each) for each in others):
                yield Program(tuple(plainest if each is habit else each for each in program.habits))


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Return a program of fewer habits that are not the plainest, that fails, too."""
    for simpler in plainer(program):
        if fails(simpler):
            return shrunk(simpler, fails)
    return program
