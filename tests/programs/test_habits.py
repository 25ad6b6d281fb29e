# SPDX-License-Identifier: Apache-2.0
"""The habits themselves: short, whole, and each drawn with every other that it can stand beside."""

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from programs.compose import Program, program
from programs.draws import drawn_program, filled, pairs, suited
from programs.habits import HERE, LISTS, MAX_LINES, SLOTS, all_habits, slots

MAX_ALL_LINES = 4000
WORDS = {
    *("slot", "plainest", "is", "without", "owner", "module", "package", "like", "with engine", "volatile"),
    *("plain rounds", "plain within", "losses within", "not under", "only plainest", "seldom"),
}
PREFIXES = ("needs ", "refused under ", "refused with ", "fails under ", "within under ", "wrong with ")


def lines_of(habit) -> int:
    return len((HERE / habit.list / f"{habit.name}.txt").read_text("utf-8").splitlines())


def test_a_habit_is_short_and_all_are_under_4000_lines():
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


def test_every_habit_is_drawn_in_a_hundredth_of_programs_and_every_pair_of_two_lists_in_10000():
    drawn, met = Counter(), set()
    for number in range(10_000):
        habits = drawn_program(number).habits
        drawn.update(habits)
        met.update(combinations(sorted(habits, key=id), 2))
    rare = {habit.name: drawn[habit] for habit in all_habits() if drawn[habit] < 100}
    unmet = [(a.name, b.name) for a, b in pairs() if tuple(sorted((a, b), key=id)) not in met]
    assert rare == {}
    assert unmet == []
