# SPDX-License-Identifier: Apache-2.0
"""Weights that a loop moves by hand, each rank otherwise, are told at the first update; moved alike they are nobody's business."""

import importlib.util
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "moved_by_rank.py"
_spec = importlib.util.spec_from_file_location("moved_by_rank", PROGRAM)
_program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_program)


@pytest.mark.sliced(3)
@pytest.mark.parametrize("habit", [kind.__name__ for kind in _program.OTHER])
def test_weights_that_differ_by_rank_in_an_update_are_refused(tmp_path, habit):
    for rank, each in enumerate(on_ranks(PROGRAM, tmp_path, habit, size=2)):
        assert each.status == 1
        assert (
            "RankError: The ranks don't train the same in an update of 'sequential', with different weights: "
            in each.error
        )
        assert "weight" in each.error
        assert "on rank 1 are not those on rank 0" in each.error
        assert (tmp_path / f"steps-{rank}").read_text() == "0"


@pytest.mark.sliced(3)
@pytest.mark.parametrize("habit", [kind.__name__ for kind in _program.SAME])
def test_weights_that_are_moved_alike_train(tmp_path, habit):
    finished = on_ranks(PROGRAM, tmp_path, habit, size=2)
    assert [each.status for each in finished] == [0, 0], finished[0].error
    assert (tmp_path / "steps-0").read_text() == "8"
