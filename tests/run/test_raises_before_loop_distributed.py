# SPDX-License-Identifier: Apache-2.0
"""A rank that raises before any loop begins is told to the others with its exception and line, as one within a loop is."""

from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "raises_before_loop.py"
CAUSES = [
    f"{PROGRAM.name}:{number}"
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
    if line.endswith("# the cause")
]
RAISED = {
    "a file that is not there": "FileNotFoundError",
    "its own check": "ValueError: fold 7 has no images",
    "columns of two lengths": "DataError: the columns differ",
    "an optimizer": "OptionError: The optimizer of 'net' could not be made",
    "behind the learner": "AssertionError: another network",
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("how", RAISED)
def test_what_one_rank_raised_before_its_loop_is_told_by_the_other(tmp_path, how, who):
    finished = on_ranks(PROGRAM, tmp_path, how, who, seconds=60)
    assert [each.status for each in finished] == [1, 1], finished[0].error
    assert RAISED[how] in finished[who].error
    told = finished[1 - who].error
    assert f"rank {who}" in told, told
    assert f"raised {RAISED[how]}" in told, told
    assert any(f"{cause})" in told for cause in CAUSES), told
