# SPDX-License-Identifier: Apache-2.0
"""Drawn programs on the stand-in of a second card, which memory runs out on once: they end where they end on the host."""

from collections import Counter

import pytest
from programs.draws import drawn_program, drawn_under
from programs.laws.card import ends_alike_on_a_card
from programs.laws.running import RefusedError

FIRST, PARTS, DRAWS = 380_000, 4, 12


def ended(program, folder):
    try:
        return ends_alike_on_a_card(program, folder)
    except RefusedError:
        return "refused"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_programs_end_alike_on_a_card(part, tmp_path):
    """Half of them can be held: the others make tensors on the host beside their model, or load and compile elsewhere."""
    counts: Counter[str] = Counter()
    for number in range(FIRST + part * DRAWS, FIRST + (part + 1) * DRAWS):
        program = drawn_under(drawn_program(number), "resume")
        if program is not None:
            counts[ended(program, tmp_path / str(number))] += 1
    assert counts["run"] >= 2, counts
