# SPDX-License-Identifier: Apache-2.0
"""Ranks with divided weights do not ask each other for the counts of a stream that they evaluate: who reads less is told by what
comes next."""

import re
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "evaluates_stream.py"


@pytest.mark.parametrize("less", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_rank_that_reads_less_of_a_stream_is_told_at_once(tmp_path, less):
    """It has no row in the last batch, where the other has one, or a batch less."""
    ranks = on_ranks(PROGRAM, tmp_path, less, seconds=60)
    assert [each.status for each in ranks] == [1, 1]
    for each in ranks:
        assert re.search("different places|read different data", each.error.strip().splitlines()[-1]), (
            each.error
        )
        assert each.seconds < 10
