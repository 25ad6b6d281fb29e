# SPDX-License-Identifier: Apache-2.0
"""Data that differ by rank lose most of themselves: they are refused, however they came to differ."""

import importlib.util
from pathlib import Path

import pytest
from support.ranks import on_ranks

import truestep as ts

PROGRAM = Path(__file__).parent / "programs" / "data_by_rank.py"
_spec = importlib.util.spec_from_file_location("data_by_rank", PROGRAM)
_program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_program)
LIBRARIES = {name: importlib.util.find_spec(name) is not None for name in ("datasets", "webdataset")}


def _parameter(habit):
    missing = next((name for name, is_there in LIBRARIES.items() if name in habit and not is_there), None)
    return pytest.param(
        habit, marks=pytest.mark.skipif(missing is not None, reason=f"{missing} is not installed")
    )


def on_each(tmp_path, habit, how, size):
    loaded = "datasets" if "datasets" in habit and LIBRARIES["datasets"] else ""  # two seconds of each rank
    return on_ranks(PROGRAM, tmp_path, habit, how, size=size, loaded=loaded)


SAME = [habit for habit in _program.HABITS if habit.startswith("the same")]
OTHER = [habit for habit in _program.HABITS if habit not in SAME]
SHARES = ["a stream, every nth", "a function, every nth", "a loader of a stream"]
HOW = ["trained on", "evaluated", "beside"]


@pytest.mark.sliced(4)
@pytest.mark.parametrize("habit", [*map(_parameter, OTHER)])
def test_data_that_differ_by_rank_are_refused_before_a_checkpoint(tmp_path, habit):
    how = HOW[OTHER.index(habit) % 3]
    finished = on_each(tmp_path, habit, how, 2)
    for rank, each in enumerate(finished):
        assert each.status == 1
        assert "DataError: The ranks" in each.error, each.error
        assert "different data" in each.error
        assert "rank 1" in each.error
        if habit in SHARES:
            assert "per_rank=True" in each.error
        assert not (tmp_path / f"ended-{rank}").exists()
    assert not list(tmp_path.glob("run/checkpoints/*/manifest.json"))


@pytest.mark.sliced(4)
@pytest.mark.parametrize("habit", [*map(_parameter, SAME)])
@pytest.mark.parametrize("size", [2, 3])
def test_the_same_data_train_and_each_sample_comes_once(tmp_path, habit, size):
    how = HOW[(SAME.index(habit) + size) % 3]
    finished = on_each(tmp_path, habit, how, size)
    assert [each.status for each in finished] == [0] * size, finished[0].error
    seen = [float(x) for rank in range(size) for x in (tmp_path / f"ended-{rank}").read_text().split()]
    if "stream" in habit:
        told = f"'source': each of {size} ranks reads all of it and takes its own rows, which costs {size} times the reading"
        assert [each.error.count(told) for each in finished] == [1] + [0] * (size - 1), finished[0].error
        assert "with run.data(..., per_rank=True)" in finished[0].error
    if "noisy" not in habit:
        assert sorted(seen) == pytest.approx(sorted(_program.X[:, 0].tolist()))


@pytest.mark.parametrize(("habit", "how"), [*zip(SHARES, HOW, strict=True)])
def test_shares_of_a_stream_train_where_that_is_said_and_each_sample_comes_once(tmp_path, habit, how):
    finished = on_each(tmp_path, habit, f"{how}, per rank", 2)
    assert [each.status for each in finished] == [0, 0], finished[0].error
    seen = [float(x) for rank in range(2) for x in (tmp_path / f"ended-{rank}").read_text().split()]
    assert sorted(seen) == pytest.approx(sorted(_program.X[:, 0].tolist()))


@pytest.mark.parametrize(
    ("habit", "how"), [("the same, a stream", "trained on"), ("the same, a stream", "evaluated")]
)
def test_the_same_data_as_shares_are_refused_before_a_sample_comes_twice(tmp_path, habit, how):
    finished = on_each(tmp_path, habit, f"{how}, per rank", 2)
    for rank, each in enumerate(finished):
        assert each.status == 1
        assert "DataError: The ranks read the same data: ranks 0 and 1" in each.error, each.error
        assert "without per_rank=True" in each.error
        assert "split_dataset_by_node(data, run.rank, run.world_size)" in each.error
        assert not (tmp_path / f"ended-{rank}").exists()
    assert not list(tmp_path.glob("run/checkpoints/*/manifest.json"))


def test_what_is_divided_already_has_no_shares(tmp_path):
    run = ts.Run(tmp_path, progress=False)
    for data in (_program.X, _program.Rows(), [1, 2, 3]):
        with pytest.raises(ts.DataError, match="per_rank=True is for streams"):
            run.data(data, batch_size=2, per_rank=True)
