# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted into drawn programs: each can be planted, reading names those that it always named, a run most others."""

import pytest
from programs.habits import MAX_LINES
from programs.naming import is_named, read_codes
from programs.planting import PLANTED, planted, plants

WORDS = {"kind", "code", "habits", "by", "read"}
EACH = 4
# the shares of those that have a check: by reading alone, and with `truestep doctor` where reading names nothing (issue 31)
LEAST_READ, LEAST_NAMED = 0.83, 0.9
CHECKED = [plant for plant in plants() if plant.codes]


@pytest.mark.parametrize("plant", plants(), ids=lambda plant: plant.name)
def test_a_plant_says_what_it_is_and_has_a_place_in_drawn_programs(plant):
    assert plant.about.endswith(".")
    assert {"kind", "code", "habits"} <= plant.words.keys() <= WORDS
    assert len((PLANTED / f"{plant.name}.txt").read_text("utf-8").splitlines()) <= MAX_LINES
    assert len(planted(plant, EACH)) == EACH


@pytest.mark.parametrize(
    "plant", [each for each in plants() if "read" in each.words], ids=lambda plant: plant.name
)
def test_reading_names_a_mistake_in_whatever_habits_it_stands(plant):
    for wrong in planted(plant, EACH):
        assert read_codes(wrong) & plant.codes, f"{plant.name} in {wrong!r}"


def test_four_in_five_of_the_planted_mistakes_that_have_a_check_are_named_by_reading():
    wrong = [(plant, each) for plant in CHECKED for each in planted(plant, EACH)]
    named = sum(bool(read_codes(program) & plant.codes) for plant, program in wrong)
    assert named / len(wrong) >= LEAST_READ


@pytest.mark.parametrize("each", [pytest.param(20, marks=pytest.mark.slow), 1])
def test_nine_in_ten_of_the_planted_mistakes_that_have_a_check_are_named_by_reading_and_running(each):
    told = {plant.name: [is_named(plant, program) for program in planted(plant, each)] for plant in CHECKED}
    read, named = (sum(one[part] for ones in told.values() for one in ones) for part in (0, 1))
    total = each * len(CHECKED)
    print(f"named by reading {read}, by reading and running {named} of {total}")
    missed = {name: sum(not both for _, both in ones) for name, ones in told.items()}
    assert named / total >= LEAST_NAMED, {name: count for name, count in missed.items() if count}
