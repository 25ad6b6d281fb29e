# SPDX-License-Identifier: Apache-2.0
"""A run of several real processes: what each sees, and what becomes of it when one fails."""

import importlib.util
import json
import re
from itertools import chain
from pathlib import Path

import pytest
import torch
from support.ranks import finish, on_ranks, start

import truestep as ts

PROGRAM = Path(__file__).parent / "programs" / "ranks.py"
ROUNDS = 50
TIMEOUT = 10


def alone(folder):
    """Return what one process finds, here."""
    folder.mkdir()
    program().looks(folder)
    return json.loads((folder / "found-0.json").read_text())


def last_line(text):
    return text.strip().splitlines()[-1] if text.strip() else ""


# what it measures are numbers that are known
@pytest.mark.filterwarnings("ignore:The function given to net.evaluate calls no model")
def test_ranks_see_one_order_count_each_sample_once_and_name_who_is_elsewhere(tmp_path):
    finished = on_ranks(PROGRAM, "looks", tmp_path)
    assert [each.status for each in finished] == [1, 1], finished[0].error  # they went apart at the end
    ranks = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in (0, 1)]
    one = alone(tmp_path / "alone")
    for whole, first, second in zip(one["seen"], ranks[0]["seen"], ranks[1]["seen"], strict=True):
        assert first[0] + second[0] == whole[0]  # the same samples in the same order,
        assert first[1] + second[1] == whole[1]  # with the same draws for each;
        assert first[2] != second[2]  # what the body draws is each rank's own
    for rank, found in enumerate(ranks):
        assert found["place"] == [rank, rank, 2, rank == 0]
        assert found["weight"] == ranks[0]["weight"]
        assert (found["loss"], found["examples"]) == (ranks[0]["loss"], 4)
        assert found["twice"] == pytest.approx(2 * found["loss"], rel=1e-6)
        assert found["metrics"] == ranks[0]["metrics"]
        for (plain, named), (mean, means) in zip(found["metrics"][:-1], one["metrics"][:-1], strict=True):
            assert plain == pytest.approx(mean, rel=1e-12, nan_ok=True)
            assert named == pytest.approx(means, rel=1e-12, nan_ok=True)
        assert found["metrics"][-1] == {"largest": 8.0, "count": 9, "order": [float(i) for i in range(9)]}
        # three batches of a metric object, each in pieces of half of what both ranks may send
        assert found["pieces"][0] > 3
        assert found["pieces"][1] == 100
        assert "accuracy is 0.0 on rank 0 and 1.0 on rank 1" in found["differs"]
        assert re.search(
            r"rank 0: an update of 'linear', \S+ranks\.py:\d+ \(step 1\); rank 1: run\.log.*longer on one rank",
            found["apart"],
        )
        assert found["alone"].startswith("RankError")
        assert found["single"] == [0, 1, 6]
    check_kept(tmp_path, [found["kept"] for found in ranks])
    said = finished[0].error
    assert re.search(
        r"PARAM016 .* 2 of 6 parameters never had a gradient: \S+never.weight, \S+never.bias\.", said
    )


def check_kept(folder, ranks):
    """Each rank's own object went on where it stood; another number of ranks is refused by name."""

    def draws(seed, number):
        draw = torch.Generator().manual_seed(seed)
        return [torch.rand(1, generator=draw).item() for _ in range(number)][-1]

    for rank, found in enumerate(ranks):
        assert found == [[draws(rank, number), draws(7, number)] for number in (3, 5)]
    with ts.Run(folder / "kept", progress=False, quiet=True) as run:
        run.track(own=torch.Generator(), per_rank=True)
        run.track(shared=torch.Generator())
        with pytest.raises(ts.CheckpointError, match=r"'own' of 2 ranks .*here are 1: .*with 2 processes"):
            list(run.steps(6))


def program():
    spec = importlib.util.spec_from_file_location("ranks_program", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# what it measures are numbers that are known
@pytest.mark.filterwarnings("ignore:The function given to net.evaluate calls no model")
@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_metric_is_that_of_one_process_for_every_number_of_samples_and_ranks(tmp_path, size):
    assert [each.status for each in on_ranks(PROGRAM, "measures", tmp_path, size=size)] == [0] * size
    (tmp_path / "alone").mkdir()
    program().measures(tmp_path / "alone")
    *one, largest = json.loads((tmp_path / "alone" / "measured-0.json").read_text())
    for rank in range(size):
        *found, largest_here = json.loads((tmp_path / f"measured-{rank}.json").read_text())
        assert largest_here == largest
        assert len(found) == len(one) == 50
        for (plain, named), (mean, means) in zip(found, one, strict=True):
            assert plain == pytest.approx(mean, rel=1e-12, nan_ok=True)
            assert named == pytest.approx(means, rel=1e-12, nan_ok=True)


@pytest.mark.slow
def test_another_number_of_ranks_goes_on_with_the_same_samples_in_the_same_order(tmp_path):
    def seen(folder, epochs, size):
        """Return the samples of each batch, of all ranks together, with what was drawn for them."""
        ranks = [json.loads((folder / f"went-{epochs}-{rank}.json").read_text()) for rank in range(size)]
        return [
            [[*chain(*parts)] for parts in zip(*batch, strict=True)] for batch in zip(*ranks, strict=True)
        ]

    (tmp_path / "alone").mkdir()
    program().goes_on(tmp_path / "alone", 4)
    found = []
    for epochs, size in ((1, 2), (2, 3), (3, 2), (4, 4)):
        statuses = [each.status for each in on_ranks(PROGRAM, "goes_on", tmp_path, epochs, size=size)]
        assert statuses == [0] * size
        found += seen(tmp_path, epochs, size)
    assert found == seen(tmp_path / "alone", 4, 1)


def test_a_killed_rank_ends_the_others_at_once_and_by_name(tmp_path):
    survivor, killed = on_ranks(PROGRAM, "trains", tmp_path, "kill", 9, 1)
    assert killed.status == -9
    assert survivor.status == 1
    assert survivor.seconds < 10
    assert re.search(r"RankError: .* rank 1 \(process \d+ on \S+\) is gone", last_line(survivor.error))


# ------------------------------------------------------------------ long: restarts, and everything else that can end a rank


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the bits that two ranks end with when nothing happens."""
    finished = on_ranks(PROGRAM, "trains", tmp_path_factory.mktemp("undisturbed"))
    assert len({last_line(each.out) for each in finished}) == 1
    return last_line(finished[0].out)


SAID = {
    "kill": "is gone",
    "raise": "raised ValueError: a bad sample",
    "stop": "is stopped",
    "hang": "did not come to .* within 10 seconds",
}


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(ROUNDS))
@pytest.mark.parametrize("how", ["kill", "raise", "stop", "hang", "miss", "ask"])
def test_a_restart_ends_with_the_bits_of_a_run_that_nothing_happened_to(
    tmp_path, monkeypatch, undisturbed, how, attempt
):
    hangs = how in ("stop", "hang")
    monkeypatch.setenv("TIMEOUT", str(TIMEOUT) if hangs else "60")
    failing = attempt % 2
    processes = start(PROGRAM, "trains", tmp_path, how, 2 + attempt % 21, failing, size=2)
    finished = finish(processes, 120, hangs=failing if hangs else None)
    other = finished[1 - failing]
    assert other.status == (143 if how == "ask" else 1), other.error
    assert other.seconds < 10
    if hangs:  # five seconds after the time-out, and what the process needs to end
        assert other.at - float((tmp_path / "failed").read_text()) < TIMEOUT + 5 + 2
    if how == "miss":
        place = (
            rf"rank {1 - failing}: an update of 'sequential', \S+ranks\.py:\d+ \(step {2 + attempt % 21}\)"
        )
        assert re.search(place, other.error)
    elif how != "ask":
        said = SAID[how]
        assert re.search(rf"rank {failing} \(process \d+ on \S+\).*{said}", last_line(other.error))
    monkeypatch.setenv("TIMEOUT", "60")
    again = on_ranks(PROGRAM, "trains", tmp_path, how, 2 + attempt % 21, failing)
    assert [last_line(each.out) for each in again] == [undisturbed] * 2
