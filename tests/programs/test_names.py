# SPDX-License-Identifier: Apache-2.0
"""All pairs of habits: none takes a name or a piece of the other's by chance, and a program of each is whole as it is read."""

from itertools import combinations

import pytest
from programs import names
from programs.compose import program
from programs.draws import beginnings, drawn_program, drawn_under, pairs
from programs.habits import Habit
from programs.names import clashes, doubled, unbound

MET_AT_ONCE = 80  # draws in make test: each begins with some pairs, and holds a hundred more


def broken(drawn) -> list[str]:
    """Return what is wrong with the text of a program, as it is drawn, and with Truestep's engine."""
    seen = []
    for held in {drawn, drawn_under(drawn, "resume") or drawn}:
        for name, text in held.files().items():
            compile(text, name, "exec")
        seen += [f"{held!r} reads {name}, which nothing binds" for name in sorted(unbound(held))]
    return seen


def test_no_two_habits_bind_one_name_by_chance():
    assert clashes() == []


def test_no_two_habits_give_one_piece_that_stands_within_a_line():
    assert doubled() == []


def test_a_drawn_program_reads_what_it_binds():
    assert [each for number in range(MET_AT_ONCE) for each in broken(drawn_program(number))] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_program_of_every_pair_reads_what_it_binds():
    left, seen = {frozenset(pair) for pair in pairs()}, []
    for number in range(len(beginnings())):
        drawn = drawn_program(number)
        new = left & {frozenset(pair) for pair in combinations(drawn.habits, 2)}
        left -= new
        seen += broken(drawn) if new else []
    assert seen == []
    assert left == set()


@pytest.mark.parametrize(
    "shape", ["script", "main_function", "class_with_fit", "dataclass_trainer", "package"]
)
def test_a_name_that_nothing_binds_is_seen(shape):
    wrong = {"update": "{{forward}}\nloss = loss * factor", "finish": "print(unknown.shape, optimizer)"}
    assert unbound(program(shape), wrong) == {"factor", "unknown"}


def test_an_attribute_that_nothing_gives_the_owner_is_seen():
    assert unbound(program("class_with_fit"), {"finish": "print(self.unknown)"}) == {"self.unknown"}


def test_a_name_and_a_piece_of_two_habits_are_seen(monkeypatch):
    slots = {
        "logging": "seen = 1",
        "keeping": "def seen(x): pass",
        "net": "import a as seen",
        "form": "shown = 1",
    }
    made = tuple(
        Habit("loop", slot, "A habit.", {"slot": slot}, {"before training": text})
        for slot, text in slots.items()
    )
    monkeypatch.setattr(names, "all_habits", lambda: made)
    two = [("logging", "keeping"), ("logging", "net"), ("keeping", "net")]
    assert clashes() == [("seen", *pair) for pair in two]
    made = tuple(
        Habit("loop", slot, "A habit.", {"slot": slot}, {"iterated": f"{slot}(loader)"}) for slot in slots
    )
    monkeypatch.setattr(names, "FRAME", {"batches": "for batch in {{iterated}}:"})
    monkeypatch.setattr(names, "all_habits", lambda: made[:2])
    assert doubled() == [("iterated", "logging", "keeping")]
