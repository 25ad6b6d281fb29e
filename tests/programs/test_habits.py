# SPDX-License-Identifier: Apache-2.0
"""The habits themselves: short, whole, and each drawn with every other that it can stand beside."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from programs import draws
from programs.compose import Program, program
from programs.draws import (
    drawn_program,
    drawn_under,
    filled,
    installed,
    is_refused,
    laws_that_refuse,
    pairs,
    refuses,
    suited,
)
from programs.habits import HERE, LISTS, MAX_LINES, SLOTS, all_habits, named, slots
from programs.laws import LAWS

MAX_ALL_LINES = 4500
WORDS = {
    *("slot", "plainest", "is", "without", "owner", "module", "package", "like", "with engine", "volatile"),
    *("plain rounds", "plain within", "losses within", "not under", "only plainest", "seldom"),
}
PREFIXES = (
    "needs ",
    "refused under ",
    "may be refused ",
    "refused with ",
    "fails under ",
    "within under ",
    "wrong with ",
    "without under ",
)
REFUSED = [
    habit
    for habit in all_habits()
    if any(word.startswith(("refused under ", "may be refused under ")) for word in habit.words)
]


def lines_of(habit) -> int:
    return len((HERE / habit.list / f"{habit.name}.txt").read_text("utf-8").splitlines())


def test_a_habit_is_short_and_all_are_under_4500_lines():
    long = [habit.name for habit in all_habits() if lines_of(habit) > MAX_LINES]
    assert long == []
    assert sum(map(lines_of, all_habits())) < MAX_ALL_LINES


def test_every_folder_is_a_list_and_every_name_is_one_habit():
    folders = {path.parent.name for path in Path(HERE).glob("*/*.txt")}
    assert folders - {"kept", "planted"} == set(LISTS)
    names = [habit.name for habit in all_habits()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("habit", all_habits(), ids=lambda habit: f"{habit.list}/{habit.name}")
def test_a_habit_says_what_it_is_in_known_words(habit):
    assert habit.slot in SLOTS
    assert habit.about.endswith(".")
    unknown = [word for word in habit.words if word not in WORDS and not word.startswith(PREFIXES)]
    assert unknown == []


@pytest.mark.parametrize("slot", SLOTS)
def test_each_slot_has_one_plainest_habit(slot):
    habits = slots()[slot]
    assert ["plainest" in habit.words for habit in habits] == [True, *[False] * (len(habits) - 1)]


@pytest.mark.parametrize("habit", all_habits(), ids=lambda habit: f"{habit.list}/{habit.name}")
def test_each_habit_stands_in_a_program_that_is_python(habit):
    for name, text in filled([habit]).files().items():
        assert "{{" not in text.replace("{{}}", "")
        compile(text, name, "exec")


def test_the_choice_for_a_slot_leaves_one_for_every_other():
    stuck = [
        (habit.name, name)
        for habit in all_habits()
        for name, habits in slots().items()
        if name != habit.slot and not suited(habits, [habit])
    ]
    assert stuck == []


def test_a_program_is_written_again_from_its_names():
    drawn = program("class_with_fit", "dataset_of_dicts")
    assert isinstance(drawn, Program)
    names = [habit.name for habit in drawn.habits]
    assert program(*names) == drawn
    assert repr(drawn).startswith("program('plain', 'class_with_fit'")


def test_what_is_built_becomes_attributes_where_no_function_has_it_as_a_parameter():
    (text,) = (
        program("class_with_fit", "a_partial", "augmented_by_torch", "dataset_of_tuples").files().values()
    )
    assert "self.optimizer = torch.optim.SGD(self.model.parameters()" in text
    assert "out = model(x)" in text  # the loss takes the model as a parameter


def test_every_habit_is_in_a_hundred_programs_and_every_pair_of_two_lists_in_one_of_12000():
    drawn = dict.fromkeys(all_habits(), 0)  # the numbers of the programs that have it, each as a bit
    for number in range(draws.DRAWS):
        for habit in drawn_program(number).habits:
            drawn[habit] |= 1 << number
    rare = {habit.name: found for habit in drawn if (found := drawn[habit].bit_count()) < 100}
    unmet = [(a.name, b.name) for a, b in pairs() if not drawn[a] & drawn[b]]
    assert rare == {}
    assert unmet == []


def test_a_number_names_its_program_where_a_habit_goes_that_it_has_not(monkeypatch):
    """Of a hundred numbers that don't have it two name another program, since its pairs leave room for those of others."""
    numbers, gone = range(300), named("class_with_fit")
    before = [drawn_program(number) for number in numbers]
    left, pairs_left = set(all_habits()) - {gone}, [pair for pair in pairs() if gone not in pair]
    monkeypatch.setattr(draws, "all_habits", lambda: left)
    monkeypatch.setattr(draws, "pairs", lambda: pairs_left)
    monkeypatch.setattr(draws, "beginnings", cache(draws.beginnings.__wrapped__))
    after = [drawn_program(number) for number in numbers]
    apart = [one != other for one, other in zip(before, after, strict=True) if gone not in one.habits]
    assert len(apart) > 200
    assert sum(apart) <= 0.05 * len(apart)


def test_few_drawn_programs_are_refused_and_no_habit_in_more_than_a_fifth():
    """What a page refuses is the law Refused's; of the others' programs no more than 3 in 100 may be."""
    drawn, refused = Counter(), Counter()
    laws = [law for law in LAWS if law not in ("read", "refused")]
    for number in range(1500):
        law = laws[number % len(laws)]
        if (held := drawn_under(drawn_program(50_000 + number), law)) is not None:
            drawn.update(["all", *held.habits])
            refused.update(["all", *held.habits] if refuses(held, law) else [])
    assert refused["all"] <= 0.03 * drawn["all"]
    assert [habit for habit in all_habits() if refused[habit] > 0.2 * drawn[habit]] == []


@pytest.mark.parametrize("habit", REFUSED, ids=lambda habit: f"{habit.list}/{habit.name}")
def test_what_a_page_refuses_is_held_by_the_law_refused(habit):
    held = drawn_under(filled([named("truestep"), habit]), "refused")
    assert habit in held.habits
    assert any(is_refused(habit, held, law) for law in laws_that_refuse(held))


@pytest.mark.parametrize("habit", all_habits(), ids=lambda habit: f"{habit.list}/{habit.name}")
def test_every_habit_that_is_installed_is_held_to_a_law(habit):
    """A habit that every law refused, or could not have, would be in no program that counts."""
    program = filled([habit])
    held = (drawn_under(program, law) for law in LAWS if law not in ("read", "refused"))
    assert not installed(habit) or any(each is not None and habit in each.habits for each in held)


@pytest.mark.parametrize("net", ["codebook", "experts"])
def test_where_a_rounding_may_choose_another_code_no_loss_that_rounds_is_compared(net):
    """In bfloat16 another code was the nearest at the third step, and the losses parted by a fifth; split sums are in float64."""
    rounding = program("truestep", net, "hardest_rows", "bfloat16_autocast")
    exact = program("truestep", net, "cross_entropy", "bfloat16_autocast")
    assert named("hardest_rows") not in drawn_under(rounding, "plain").habits
    assert drawn_under(exact, "plain") == exact
