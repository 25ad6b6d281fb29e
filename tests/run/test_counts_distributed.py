# SPDX-License-Identifier: Apache-2.0
"""What start, steps, a save and an evaluation cost each rank, counted and not timed: how it grows with ranks and with tensors."""

import json
import math
import sys
from pathlib import Path

import pytest
from support.ranks import on_ranks

PROGRAM = Path(__file__).with_name("counts_over_ranks.py")
PHASES = ("start", "steps", "steps with a save", "evaluation", "metric")
SMALL = (10, 1000)
LARGE = (10, 1000, 10_000)

linux = pytest.mark.skipif(sys.platform != "linux", reason="sockets and threads are counted in /proc")


def counted(folder, size, numbers=SMALL):
    """Return what each rank counted, by the number of tensors."""
    folder.mkdir(exist_ok=True)
    finished = on_ranks(PROGRAM, folder, *numbers, size=size)
    assert [each.status for each in finished] == [0] * size, finished[0].error
    files = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    return {number: [each[str(number)] for each in files] for number in numbers}


def exponent(few, many, times):
    """Return with which power of what has grown so many times a count grows."""
    return math.log(many / few, times) if few else 0.0


def check_ranks(few, many, times):
    for number in few:
        for ranks in ((0, 0), (1, 1), (-1, -1)):
            one, other = few[number][ranks[0]], many[number][ranks[1]]
            for phase in PHASES:
                assert one[phase]["messages"] == other[phase]["messages"], phase
                assert exponent(one[phase]["bytes"], other[phase]["bytes"], times) < 0.05, phase
                assert exponent(one[phase]["received"], other[phase]["received"], times) < 1.01, phase
        # of others a rank gets small numbers alone, and rank 0 what the metric is given
        ours, theirs = (rank["metric"] for rank in many[number][:2])
        assert theirs["received"] <= theirs["messages"] * 72 * len(many[number])
        assert theirs["received"] < ours["received"]
        first, last = few[number][1], many[number][1]
        # rank 0 reads a word of each; the others ask as often however many they are
        assert all(first[phase]["requests"] == last[phase]["requests"] for phase in PHASES)
        assert exponent(first["process"]["sockets"], last["process"]["sockets"], times) < 1
        assert first["process"]["threads"] == last["process"]["threads"]


def check_tensors(ranks):
    for rank in range(2):
        few, *more = (found[rank] for found in ranks.values())
        for number, many in zip([*ranks][1:], more, strict=True):
            for phase in PHASES:
                assert many[phase]["messages"] == few[phase]["messages"], (phase, number)
                assert abs(many[phase]["received"] - few[phase]["received"]) <= 200, phase
                # what rides with the gradients, a number for each tensor, no longer fits into the smallest message
                is_larger = number > 4000 and phase in PHASES[:3]
                # at the start besides the buffers themselves, which rank 0 gives to all
                riders = 4 * number * (5 if is_larger else phase == "start")
                assert abs(many[phase]["bytes"] - few[phase]["bytes"]) <= riders + 200, (phase, number)


@linux
def test_alone_nothing_is_sent_and_nothing_is_asked(tmp_path):
    for (found,) in counted(tmp_path, 1).values():
        assert all(not any(found[phase].values()) for phase in PHASES)


@linux
def test_messages_do_not_grow_with_ranks_or_tensors(tmp_path):
    two, four = (counted(tmp_path / str(size), size) for size in (2, 4))
    for rank in two[10]:
        assert rank["steps"]["messages"] == 4  # one for each update
    check_ranks(two, four, 2)
    check_tensors(two)
    check_tensors(four)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_one_rank_of_a_thousand_sends_as_many_messages(tmp_path, strategy):
    found = {}
    for size in (4, 64, 1024):
        (folder := tmp_path / str(size)).mkdir()
        (finished,) = on_ranks(PROGRAM.with_name("counts_among_many.py"), folder, strategy, size, 10, size=1)
        assert not finished.status, finished.error
        found[size] = json.loads((folder / "0.json").read_text())["10"]
    few, more, most = found.values()
    for phase in PHASES:
        # (a save that takes seconds says so once in each)
        assert most[phase]["requests"] - few[phase]["requests"] <= (phase == "steps with a save") * 60, phase
        assert exponent(more[phase]["received"], most[phase]["received"], 16) < 1.1 or phase == "steps", phase
        assert few[phase]["messages"] == more[phase]["messages"] == most[phase]["messages"], phase
        # of each rank a head and room for some numbers more
        assert most[phase]["bytes"] - few[phase]["bytes"] <= 4 * (8 + 3 * 16) * 1024 * 6, phase


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return counted(tmp_path_factory.mktemp("four"), 4, LARGE)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("size", [8, 16])
def test_messages_do_not_grow_with_many_ranks_or_ten_thousand_tensors(tmp_path, four, size):
    many = counted(tmp_path, size, LARGE)
    check_ranks(four, many, size // 4)
    check_tensors(many)
    sockets = (found[10][1]["process"]["sockets"] for found in (four, many))
    # opened when used: a mesh has as many as there are ranks
    assert size < 16 or exponent(*sockets, size // 4) < 0.5
