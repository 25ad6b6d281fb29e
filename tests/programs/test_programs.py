# SPDX-License-Identifier: Apache-2.0
"""Every law over drawn programs: each is text that a stranger could have written, run in real processes."""

from functools import cache

import pytest
from programs.draws import drawn_program, drawn_under
from programs.habits import named
from programs.laws import hold
from support.old_torch import DIVIDES

pytestmark = pytest.mark.xdist_group("programs")  # they are drawn once
FIRST = 310_000  # no slice of the first ten thousand is tried by each change
PAIRS = {  # of how many programs each law is held
    "plain": 12,
    "split": 10,
    "order": 8,
    "resume": 12,
    "ranks": 4,
    "fsdp": 2,
    "ownership": 5,
    "truthful": 8,
    "watched": 10,
    "read": 230,
    "refused": 4,
}
BEGUN = {  # what some programs begin with, so that each kind of state that a resumed run puts back is in several
    "resume": (
        "float16_autocast stream_with_state",
        "float16_autocast iterator_with_state",
        "float16_autocast minibatches_by_permutation",
        "stream_with_state",
        "iterator_with_state",
        "minibatches_by_permutation truestep_by_steps",
    )
}
PARTS = 4
DIVIDING = ("fsdp", "refused")  # laws over programs of which some divide their weights


@cache
def programs_for(law: str):
    """Return the programs that a law is held over: the first draws that it can be held over."""
    found, number = [], FIRST + 800 * list(PAIRS).index(law)
    begun = [*BEGUN.get(law, ()), *[""] * PAIRS[law]]
    while len(found) < PAIRS[law]:
        program = drawn_under(drawn_program(number, *map(named, begun[len(found)].split())), law)
        number += 1
        found += [program] if program is not None else []
    return found


def test_300_pairs_of_a_program_and_a_law_are_held():
    assert sum(PAIRS.values()) >= 300


@pytest.mark.whole
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    "law", [pytest.param(law, marks=DIVIDES) if law in DIVIDING else law for law in PAIRS]
)
def test_a_law_holds_over_drawn_programs(law, part, tmp_path):
    for number, program in enumerate(programs_for(law)[part::PARTS]):
        assert hold(law, program, tmp_path / str(number)) in ("run", "refused")
