# SPDX-License-Identifier: Apache-2.0
"""Streams of which each rank reads a share: trained on, evaluated and resumed as one process would with the same batches."""

import importlib.util
import json
from itertools import chain
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).parent / "programs" / "own_streams.py"
_spec = importlib.util.spec_from_file_location("own_streams", PROGRAM)
program = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(program)


def ends(folder, how, size):
    return [json.loads((folder / f"{how}-{rank}.json").read_text()) for rank in range(size)]


def close(value):
    if isinstance(value, list):
        return [close(each) for each in value]
    return pytest.approx(value, rel=1e-12, abs=1e-14)


def passes(name, size):
    """Return the ids of all samples of a pass that is read whole."""
    sizes = program.KINDS[name][0]
    sizes = {"function": program.LONG_LAST, "ready batches": program.UNEVEN}.get(
        name
    ) or sizes().__dict__.get("sizes")
    return sorted(number for rank in range(size) for number in program.ids(sizes or program.UNEVEN, rank))


@pytest.mark.sliced(2)
@pytest.mark.parametrize(
    ("how", "size"),
    [("some", 3), ("fsdp", 3), *(pytest.param("ddp", size, marks=pytest.mark.slow) for size in (2, 3))],
)
def test_each_sample_comes_once_and_all_end_as_one_process_does(tmp_path, how, size):
    finished = on_ranks(PROGRAM, tmp_path, how, size=size)
    assert [each.status for each in finished] == [0] * size, finished[0].error
    ranks = ends(tmp_path, how, size)
    for name in ranks[0]:
        seen = [rank[name][0] for rank in ranks]
        assert len({len(each) for each in seen}) == 1, name
        batches = [[*chain(*parts)] for parts in zip(*seen, strict=True)]
        if program.KINDS[name][1].get("drop_last"):
            assert {len(batch) for batch in batches} == {program.BATCH}
        else:
            assert sorted(chain(*batches)) == sorted(2 * passes(name, size)), name
        if name == "noise":
            continue
        one = program.reference(tmp_path / "one", name, batches[: len(batches) // 2])
        for rank in ranks:
            assert [rank[name][1], *rank[name][2:]] == close(one[1:]), name


@pytest.mark.parametrize(
    "stop", [8, *(pytest.param(stop, marks=pytest.mark.slow) for stop in range(1, 11) if stop != 8)]
)
def test_a_run_that_is_killed_goes_on_exactly(tmp_path, stop):
    size = 2 + stop % 2
    whole, killed = (on_ranks(PROGRAM, tmp_path / how, how, stop, size=size) for how in ("whole", "killed"))
    assert [each.status for each in whole] == [0] * size, whole[0].error
    assert 0 not in [each.status for each in killed]
    if done := (stop - 1) // program.EVERY * program.EVERY:
        (other,) = on_ranks(PROGRAM, tmp_path / "killed", "again", stop, size=1)
        assert other.status == 1
        assert f"CheckpointError: The checkpoint holds the places of {size} ranks in 'data'" in other.error
        assert f"Go on with {size} processes" in other.error
    again = on_ranks(PROGRAM, tmp_path / "killed", "again", stop, size=size)
    assert [each.status for each in again] == [0] * size, again[0].error
    for one, other in zip(
        ends(tmp_path / "whole", "whole", size), ends(tmp_path / "killed", "again", size), strict=True
    ):
        assert other[0] == one[0][done:]
        assert other[1:] == one[1:]
