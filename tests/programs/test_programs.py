# SPDX-License-Identifier: Apache-2.0
"""Every law over drawn programs: each is text that a stranger could have written, run in real processes."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from programs.draws import programs
from programs.laws import LAWS

SLICES, EACH = 2, 15


def held(law: str, number: int, count: int, phases=(Phase.generate,)) -> None:
    """Draw programs by a seed and hold a law over them."""

    @seed(number)
    @settings(max_examples=count, phases=phases, database=None, suppress_health_check=list(HealthCheck))
    @given(program=programs(law))
    def holds(program):
        with tempfile.TemporaryDirectory() as folder:
            LAWS[law](program, Path(folder) / "program")

    holds()


@pytest.mark.parametrize("number", range(SLICES))
@pytest.mark.parametrize("law", LAWS)
def test_a_law_holds_over_drawn_programs(law, number):
    held(law, number, EACH)
