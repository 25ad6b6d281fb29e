# SPDX-License-Identifier: Apache-2.0
"""Draws of habits, one for each slot, so that every two of them can stand in one program.

A draw has a number, which names its program for as long as its habits are what they are. Every pair of habits of different lists
that chance would seldom make stands at the beginning of one of 12,000 draws, so that no habit is rare; the other slots are filled
around them by chance.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from itertools import combinations, count

from programs.compose import Program
from programs.habits import Habit, all_habits, slots
from programs.laws import LAWS, LIKE, OF_THE_ENGINE, WITH, under
from programs.laws.running import refusals

ENGINES = ("plain", "truestep", "truestep_with_block", "truestep_by_steps")  # to these every law can be held
DRAWS = 12_000  # that have every pair of two lists
MOST_BEGUN = 10  # habits that a draw begins with
OFTEN = 300  # choices of two slots: chance makes each of so many pairs some thirty times in all draws
COMMON = 0.75  # a habit that goes with so many of all has pairs enough to share a draw between two
ALONE = 60  # places where a pair of another asks for a draw of its own


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


def by_chance(*what: object) -> int:
    """Return a number by chance that is a function of what it is asked for."""
    return int.from_bytes(blake2b(" ".join(map(str, what)).encode(), digest_size=8).digest())


@cache
def pairs() -> list[tuple[Habit, ...]]:
    """Return every two habits of different lists that can stand in one program, in a mixed order."""
    found = combinations(sorted(all_habits(), key=lambda habit: habit.name), 2)
    found = [pair for pair in found if pair[0].list != pair[1].list and pair[0].suits(pair[1])]
    return sorted(filter(can_be_filled, found), key=lambda pair: by_chance(*(habit.name for habit in pair)))


def go_together(there: tuple[Habit, ...], pair: tuple[Habit, ...]) -> bool:
    """Return whether one program can have what stands in a place and a pair as well."""
    new = [habit for habit in pair if habit not in there]
    return (
        not {habit.slot for habit in there} & {habit.slot for habit in new}
        and all(a in beside(b) for a in there for b in new)
        and can_be_filled((*there, *new))
    )


def is_seldom(pair: tuple[Habit, ...]) -> bool:
    """Return whether chance alone might not make a pair in all draws: it is one of many, or one of them needs or excludes much."""
    one, other = pair
    choices = len(slots()[one.slot]) * len(slots()[other.slot])
    asks = any(word.startswith(("needs ", "seldom")) for habit in pair for word in habit.words)
    few = min(len(beside(habit)) for habit in pair) < COMMON * len(all_habits())
    return choices > OFTEN or asks or few or "framework" in (one.slot, other.slot)


@cache
def beginnings() -> list[tuple[Habit, ...]]:
    """Return what each draw begins with: the pairs that chance puts there, of those that go together.

    One that finds no room in its place goes to another, so that a pair more or less moves few others. A habit of few pairs has
    a draw for each, as far as there are some, since it would be drawn less often.
    """
    places: list[tuple[Habit, ...]] = [()] * DRAWS
    most = COMMON * len(all_habits())
    for pair in filter(is_seldom, pairs()):
        names = [habit.name for habit in pair]
        for attempt in count():
            place = by_chance(*names, attempt) % DRAWS
            there = places[place]
            shared = set(pair) & set(there)
            may_share = attempt >= ALONE or all(len(beside(each)) > most for each in shared)
            if not there or (len(there) < MOST_BEGUN and may_share and go_together(there, pair)):
                places[place] = tuple(dict.fromkeys((*there, *pair)))
                break
    return places


def choice_by(*what: object) -> Callable[[list[Habit]], Habit]:
    """Return what chooses one of several habits: any of them, but four of ten frameworks are of those that all laws take.

    Which it is depends on those alone that it could be: one more is chosen or changes nothing. What takes long is in the draws of
    its pairs alone.
    """

    begun = blake2b(" ".join(map(str, what)).encode(), digest_size=8)

    def rank(habit: Habit) -> bytes:
        """Return `by_chance(*what, habit.name)`, as bytes: it is asked for a million times."""
        chance = begun.copy()
        chance.update(f" {habit.name}".encode())
        return chance.digest()

    def choose(allowed: list[Habit]) -> Habit:
        allowed = [habit for habit in allowed if "seldom" not in habit.words] or allowed
        engines = [habit for habit in allowed if habit.name in ENGINES]
        if engines and by_chance(*what, "engine") % 10 < 4:
            allowed = engines
        return min(allowed, key=rank)

    return choose


def drawn_program(number: int, *begun: Habit) -> Program:
    """Return the program of a number: whatever is installed, and seldom another where a habit comes or goes that it has not.

    It begins with its pairs of habits, or with those that are given in their place.
    """
    first = list(begun or beginnings()[number % DRAWS])
    tried = (filled(first, choice_by(number, attempt)) for attempt in range(100))
    found = next(filter(None, tried), None)  # what was chosen may leave nothing for a slot
    return drawn_program(number + 1, *begun) if found is None else found


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
        fits = takes_part(habit, law, framework) and all(each in beside(habit) for each in kept)
        fits = fits and (refused or not is_refused(habit, held, law))
        laws = (law, LIKE.get(law, law))
        fits = fits and not any(
            a.stands_apart(b, laws) or b.stands_apart(a, laws) for a in kept for b in [habit]
        )
        kept += [habit] if fits and habit not in kept else []
    found = filled(kept)
    # what fills a slot may not be held beside the others to this law either
    return found if found in (None, program) else fitted(found, law, refused=refused)


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
    return min(found, key=lambda held: by_chance("refused", held)) if found else None


def trials(numbers: Iterable[int], laws_each: int = 3) -> Iterator[tuple[int, str, Program]]:
    """Return what a slice of draws holds: the number of each draw, and each of its laws with the program as it is held there."""
    for number in numbers:
        program = drawn_program(number)
        held = {law: found for law in LAWS if (found := drawn_under(program, law)) is not None}
        for law in sorted(held, key=lambda law: by_chance(number, law))[:laws_each]:
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
