# SPDX-License-Identifier: Apache-2.0
"""Laws that would break: each sees a difference that is planted in a program of its own."""

import pytest
from programs.compose import Program, program
from programs.habits import Habit, named
from programs.laws import ViolationError, under
from programs.laws.ranks import agreed
from support.old_torch import DIVIDES

MOVED = 'weight = next(model.parameters())\nwith torch.no_grad():\n    {where}.add_(int(__import__("os").environ.get("RANK", 0)))'


def with_piece(name: str, text: str) -> Program:
    """Return the plainest program of Truestep's with a piece that no habit has."""
    plainest = program("truestep")
    habit = Habit("loop", "planted", "A difference.", {"slot": "keeping"}, {name: text})
    return Program(tuple(habit if each.slot == "keeping" else each for each in plainest.habits))


@pytest.mark.parametrize(
    ("law", "where", "words"),
    [
        ("ranks", "weight", "rank 1, not as rank 0, [0].modules"),
        pytest.param("fsdp", "getattr(weight, '_local_tensor', weight)", "apart", marks=DIVIDES),
    ],
)
def test_weights_that_differ_by_rank_at_the_end_break_the_law(law, where, words, tmp_path):
    planted = with_piece("at the end", MOVED.format(where=where))
    options = ', strategy="fsdp"' if law == "fsdp" else ""
    with pytest.raises(ViolationError) as broken:
        agreed(under(planted, law), tmp_path / "program", law, ([2],), options)
    assert words in broken.value.seen


def test_weights_that_differ_by_rank_for_a_step_break_the_law(tmp_path):
    """At a step whose sums are not compared, and back again before a save compares them."""
    there = "if run.step == 6:\n    next(model.parameters()).data.add_({sign}int(__import__('os').environ.get('RANK', 0)))"
    update = "\n".join((named("one_step").pieces["update truestep"], there.format(sign="")))
    planted = with_piece("after update", there.format(sign="-"))
    one_step = Habit("optimization", "planted", "A difference.", {"slot": "update"}, {"update": update})
    planted = Program(tuple(one_step if each.slot == "update" else each for each in planted.habits))
    with pytest.raises(ViolationError) as broken:
        agreed(under(planted, "ranks"), tmp_path / "program", "ranks", ([2],))
    assert "other weights by rank behind step 6" in broken.value.seen
