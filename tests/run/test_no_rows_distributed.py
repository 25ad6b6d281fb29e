# SPDX-License-Identifier: Apache-2.0
"""What a body raises on a rank that has no row of its batch says so, on all ranks."""

from pathlib import Path

from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "no_rows.py"


def test_a_body_that_looks_at_a_row_where_there_is_none_is_told_why(tmp_path):
    first, second = on_ranks(PROGRAM, tmp_path, "looks", seconds=60)
    said = "no row of a batch of 1, which is divided over 2 ranks: there is no batch[0]"
    assert said in first.error
    assert said in second.error


def test_a_body_that_asks_first_goes_on(tmp_path):
    assert ["done 3" in each.out for each in on_ranks(PROGRAM, tmp_path, "asks", seconds=60)] == [True, True]
