# SPDX-License-Identifier: Apache-2.0
"""Data that differ by rank lose most of themselves: they are refused, however they came to differ."""

import importlib.util
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "data_by_rank.py"
_spec = importlib.util.spec_from_file_location("data_by_rank", PROGRAM)
_program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_program)
SAME = [habit for habit in _program.HABITS if habit.startswith("the same")]
OTHER = [habit for habit in _program.HABITS if habit not in SAME]
HOW = ["trained on", "evaluated", "beside"]


@pytest.mark.parametrize("habit", OTHER)
def test_data_that_differ_by_rank_are_refused_before_a_checkpoint(tmp_path, habit):
    how = HOW[OTHER.index(habit) % 3]
    finished = on_ranks(PROGRAM, tmp_path, habit, how, size=2)
    for rank, each in enumerate(finished):
        assert each.status == 1
        assert "DataError: The ranks" in each.error, each.error
        assert "different data" in each.error
        assert "rank 1" in each.error
        assert not (tmp_path / f"ended-{rank}").exists()
    assert not list(tmp_path.glob("run/checkpoints/*/manifest.json"))


@pytest.mark.parametrize("habit", SAME)
@pytest.mark.parametrize("size", [2, 3])
def test_the_same_data_train_and_each_sample_comes_once(tmp_path, habit, size):
    how = HOW[(SAME.index(habit) + size) % 3]
    finished = on_ranks(PROGRAM, tmp_path, habit, how, size=size)
    assert [each.status for each in finished] == [0] * size, finished[0].error
    seen = [float(x) for rank in range(size) for x in (tmp_path / f"ended-{rank}").read_text().split()]
    if "noisy" not in habit:
        assert sorted(seen) == pytest.approx(sorted(_program.X[:, 0].tolist()))
