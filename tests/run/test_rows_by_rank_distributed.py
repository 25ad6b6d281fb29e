# SPDX-License-Identifier: Apache-2.0
"""A stream that gives one rank another number of rows is refused in the update, before any weight has changed by it."""

import importlib.util
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "rows_by_rank.py"
BESIDE = Path(__file__).parent / "programs" / "looked_at_alone.py"
_spec = importlib.util.spec_from_file_location("rows_by_rank", PROGRAM)
_program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_program)
READY = "a function of ready batches"
ALL = [*((habit, "plain") for habit in _program.MADE), *((READY, loop) for loop in _program.LOOPS[1:])]
BY_WHAT_WAS_READ = ("two workers", "a mixture")  # which differ at a batch that is compared as a whole


@pytest.mark.sliced(5)
@pytest.mark.parametrize(("habit", "loop"), ALL)
def test_another_number_of_rows_on_one_rank_is_refused_in_the_update(tmp_path, habit, loop):
    finished = on_ranks(PROGRAM, tmp_path, habit, "other", loop, size=2)
    for rank, each in enumerate(finished):
        assert each.status == 1
        assert "DataError: The ranks read different data" in each.error, each.error
        if habit not in BY_WHAT_WAS_READ:
            assert "was read with 8 examples on rank 0 and with" in each.error, each.error
            assert (tmp_path / f"steps-{rank}").read_text() == str(_program.AT)
        assert not (tmp_path / f"ended-{rank}").exists()


@pytest.mark.sliced(5)
@pytest.mark.parametrize(("habit", "loop"), ALL)
def test_as_many_rows_on_all_ranks_train(tmp_path, habit, loop):
    finished = on_ranks(PROGRAM, tmp_path, habit, "same", loop, size=2)
    assert [each.status for each in finished] == [0, 0], finished[0].error


@pytest.mark.parametrize(("data", "how"), [("mapped", "all"), ("a stream", "left")])
def test_data_that_one_rank_looks_at_for_itself_say_nothing_of_the_batch_that_all_have(tmp_path, data, how):
    finished = on_ranks(BESIDE, tmp_path, data, how, size=2, seconds=60)
    assert [each.status for each in finished] == [0, 0], finished[0].error
