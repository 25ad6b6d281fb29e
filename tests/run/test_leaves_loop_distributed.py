# SPDX-License-Identifier: Apache-2.0
"""An exception that code outside of its loop catches is told to the other ranks, and `sys.exit` keeps its status."""

from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "leaves_loop.py"
CAUSES = [
    f"{PROGRAM.name}:{number}"
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
    if line.endswith("# the cause")
]
CAUGHT = [
    "caught, of the body",
    "caught, shown",
    "caught, deeper",
    "caught, deeper, then evaluates",
    "caught, asserted",
    "caught, of the data",
    "caught, in steps",
]
EXITS = {
    "exits": 3,
    "exits with a variable": 3,
    "raises its exit": 3,
    "exits with words": 1,
    "exits with 0": 1,
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("how", [*CAUGHT, *EXITS])
def test_what_ended_the_loop_of_one_rank_is_told_on_all(tmp_path, how):
    finished = on_ranks(PROGRAM, tmp_path, how, seconds=60)
    assert [each.status for each in finished] == [1, EXITS.get(how, 1)], finished[1].error
    told = finished[0].out  # it catches what it is told, too
    assert "training failed: RankError: The ranks came to different places" in told
    assert "behind what ended its loop: " in told
    assert any(f"{cause})" in told for cause in CAUSES), told


@pytest.mark.parametrize("how", ["all caught", "all break", "within the body"])
def test_what_all_ranks_do_is_nobodys_fault(tmp_path, how):
    finished = on_ranks(PROGRAM, tmp_path, how, seconds=60)
    assert [each.status for each in finished] == [0, 0], finished[0].error
