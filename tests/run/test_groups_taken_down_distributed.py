# SPDX-License-Identifier: Apache-2.0
"""A script that takes torch's process groups down itself, as scripts for DDP do at their end."""

from pathlib import Path

from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "taken_down.py"


def test_a_script_may_take_the_groups_down_and_train_again(tmp_path):
    finished = on_ranks(PROGRAM, tmp_path)
    assert [(each.status, each.error) for each in finished] == [(0, "")] * 2
