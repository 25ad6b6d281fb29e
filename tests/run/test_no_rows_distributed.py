# SPDX-License-Identifier: Apache-2.0
"""What a body raises on a rank that has no row of its batch says so, on all ranks."""

from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "no_rows.py"


def test_a_body_that_looks_at_a_row_where_there_is_none_is_told_why(tmp_path):
    first, second = on_ranks(PROGRAM, tmp_path, "looks", "ddp", seconds=60)
    said = "no row of a batch of 1, which is divided over 2 ranks: there is no batch[0]"
    assert said in first.error
    assert said in second.error


@pytest.mark.parametrize(("strategy", "calls"), [("ddp", [3, 0]), ("fsdp", [3, 3])])
def test_a_body_that_asks_first_goes_on_and_its_loss_is_called_where_all_are_needed(
    tmp_path, strategy, calls
):
    ranks = on_ranks(PROGRAM, tmp_path, "asks", strategy, seconds=60)
    assert [each.out.splitlines()[-1:] for each in ranks] == [[f"done 3 calls {number}"] for number in calls]
