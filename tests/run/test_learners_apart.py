# SPDX-License-Identifier: Apache-2.0
"""Drawn trainings of one to three learners: others' updates change nothing of what one draws, and neither do kills or ranks."""

import random
from pathlib import Path

import pytest
import torch
from support.drawn_learners import EPOCHS, drawn, for_ranks, train, train_alone, without_others
from support.ranks import on_ranks
from torture import kills

PROGRAM = Path(__file__).parent / "programs" / "drawn_learners.py"
NUM_DRAWN = 12


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.sliced(6)  # the laws Ownership and Resume hold drawn programs of several learners, too
@pytest.mark.parametrize("number", range(NUM_DRAWN))
def test_a_learner_ends_where_it_ends_without_the_others(number, tmp_path):
    plan = drawn(number)
    whole = train(tmp_path / "whole", plan)
    for name in plan.learners:
        for made in (True, False):
            alone = train(tmp_path / f"{name} {made}", without_others(plan, name, made=made))
            assert same(whole[name], alone[name]), (plan, name, made)


@pytest.mark.sliced(6)  # the laws Ownership and Resume hold drawn programs of several learners, too
@pytest.mark.parametrize("number", range(NUM_DRAWN))
def test_a_killed_run_of_learners_ends_where_the_whole_one_does(number, tmp_path):
    plan, chance = drawn(number), random.Random(number)
    expected = train(tmp_path / "whole", plan)
    updates = EPOCHS * (3 * len(plan.body) * (1 + plan.in_turn) + len(plan.behind))
    for _ in range(3):
        moment = chance.randrange(updates)
        kills.forked(lambda folder, at=moment: str(train(folder, plan, kill_at=at)), tmp_path / "killed").end(
            60.0
        )
    ends = train(tmp_path / "killed", plan)
    assert all(same(expected[name], ends[name]) for name in plan.learners), plan


@pytest.mark.parametrize("number", range(3))
def test_a_run_of_updates_alone_goes_on_with_the_numbers_that_follow(number, tmp_path):
    plan = drawn(number)
    expected = train_alone(tmp_path / "whole", plan, 4)
    train_alone(tmp_path / "left", plan, 1)
    assert same(expected, train_alone(tmp_path / "left", plan, 3))


def test_two_ranks_end_where_one_does(tmp_path):
    finished = on_ranks(PROGRAM, tmp_path, NUM_DRAWN)
    assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
    for number in range(NUM_DRAWN):
        plan = for_ranks(number)
        alone = train(tmp_path / f"alone {number}", plan, dropout=0.0, dtype=torch.float64)
        together = torch.load(tmp_path / f"{number}.pt")
        for name, weights in alone.items():
            for key, weight in weights.items():
                torch.testing.assert_close(together[name][key], weight, rtol=1e-11, atol=1e-12)
