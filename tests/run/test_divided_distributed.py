# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that ranks write in pieces: the bits of a whole one at any number of ranks, and the last good one after a kill."""

import functools
import importlib.util
import os
import re
import signal
import time
from pathlib import Path

import pytest
import torch
from support.old_torch import DIVIDES
from support.ranks import finish, on_ranks, start

import truestep as ts
from truestep.checkpoints import Checkpoint
from truestep.checkpoints.listing import checkpoint_overview
from truestep.checkpoints.state_diff import compare_states

PROGRAM = Path(__file__).parent / "programs" / "divided.py"


def said(text, what):
    return re.findall(rf"^{what} (.*)$", text, re.MULTILINE)


def on(size, *arguments):
    """Train as so many ranks; return what all of them began with, and ended with."""
    finished = on_ranks(PROGRAM, *arguments, size=size)
    assert [each.status for each in finished] == [0] * size, finished[0].error[-3000:]
    begun, ended = (
        {found for each in finished for found in said(each.out, what)} for what in ("began with", "ends with")
    )
    assert len(begun) == len(ended) == 1
    return begun.pop(), ended.pop(), finished[0].out


def program():
    spec = importlib.util.spec_from_file_location("divided", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def alone(folder, epochs, capsys):
    program().trains(folder, epochs)
    return said(capsys.readouterr().out, "began with")[0]


def files_of_ranks(checkpoint):
    return {int(found[1]) for name in checkpoint.manifest.files if (found := re.search(r"-r(\d+)\.", name))}


def check_bits(folder, epochs):
    """What one process reads are the bits that the ranks gathered at the end."""
    saved = ts.read_checkpoint(folder / "run")["learners"]["net"]
    gathered = torch.load(folder / f"{epochs}.pt", weights_only=False)
    parts = ("modules", "averages", "optimizers")
    changes = compare_states({part: gathered[part] for part in parts}, {part: saved[part] for part in parts})
    assert changes.changes == [], changes


@pytest.mark.slow
def test_pieces_of_four_ranks_are_a_whole_checkpoint_for_one_and_for_three(tmp_path, capsys):
    _, ended, out = on(4, tmp_path, 1)
    assert "in pieces" in out
    check_bits(tmp_path, 1)
    # of five rows, two each, the fourth rank has none
    assert files_of_ranks(checkpoint_overview(tmp_path / "run")[0]) == {0, 1, 2}
    whole = program().bytes_here(ts.read_checkpoint(tmp_path / "run")["learners"])
    begun, ended_3, out = on(3, tmp_path, 2)
    assert begun == ended
    assert 0 < int(said(out, "bytes read")[0]) < 0.6 * whole  # two rows of five are rank 0's
    check_bits(tmp_path, 2)
    assert files_of_ranks(checkpoint_overview(tmp_path / "run")[0]) == {0, 1, 2}
    assert alone(tmp_path, 3, capsys) == ended_3


OWN_DISKS = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process a disk of its own")


@DIVIDES
@OWN_DISKS
@pytest.mark.parametrize("at_once", [False, True], ids=["in the background", "at once"])
def test_ranks_without_a_disk_for_all_leave_the_checkpoint_of_ranks_that_have_one(
    tmp_path, monkeypatch, at_once
):
    if at_once:
        monkeypatch.setenv("AT_ONCE", "1")
    together, apart = tmp_path / "together", tmp_path / "apart" / "disk"
    together.mkdir()
    apart.mkdir(parents=True)
    _, ended, _ = on(2, together, 1)
    monkeypatch.setenv("APART", "1")
    _, found, out = on(2, tmp_path / "apart", 1)
    assert found == ended
    assert "checkpoints in pieces, by rank 0" in out
    check_bits(apart, 1)
    one, other = (checkpoint_overview(folder / "run")[0].path for folder in (together, apart))
    names = sorted(path.name for path in one.glob("learners.*"))
    assert names == sorted(path.name for path in other.glob("learners.*"))
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in names)
    begun, _, _ = on(2, tmp_path / "apart", 2)
    assert begun == ended


@DIVIDES
@OWN_DISKS
def test_a_disk_that_takes_no_more_of_what_is_sent_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("APART", "1")
    monkeypatch.setenv("FULL", "6")  # of the second save the second file
    (tmp_path / "disk").mkdir()
    finished = on_ranks(PROGRAM, tmp_path, 1, size=2)
    assert [each.status for each in finished] == [1, 1]
    assert "could not be written" in finished[0].error
    assert "No space left" in finished[0].error
    (left,) = checkpoint_overview(tmp_path / "disk" / "run")
    left.verify()
    assert left.step == 2


def kill(folder, size, rank, sync):
    """Kill a rank at a sync: all others end soon, and name it."""
    finished = finish(start(PROGRAM, folder, 2, rank, sync, size=size), 120)
    assert [each.status for each in finished] == [-9 if each == rank else 1 for each in range(size)]
    for each, other in enumerate(finished):
        if each != rank:
            assert other.seconds < 10
            assert re.search(rf"RankError: .* rank {rank} \(process \d+ on \S+\) is gone", other.error)


def killed(folder, size, rank, sync, expected):
    """Kill a rank at a sync; what is left loads, and the run goes on from there to the same bits."""
    kill(folder, size, rank, sync)
    left = checkpoint_overview(folder / ("disk" if "APART" in os.environ else "") / "run")
    for checkpoint in left:
        assert isinstance(checkpoint, Checkpoint)
        checkpoint.verify()
    _, ended, _ = on(size, folder, 2)
    assert ended == expected
    return [checkpoint.step for checkpoint in left]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return what a training that nothing disturbs ends with, by the number of ranks."""
    return functools.cache(lambda size: on(size, tmp_path_factory.mktemp(f"calm-{size}"), 2)[1])


@DIVIDES
def test_a_rank_that_is_killed_in_the_midst_of_a_save_leaves_the_last_good_checkpoint(tmp_path, undisturbed):
    # a save of rank 1 puts four files on the disk: weights, averages, optimizer, and the note of them
    assert killed(tmp_path, 2, 1, 11, undisturbed(2)) == [4, 2]


@DIVIDES
@OWN_DISKS
@pytest.mark.parametrize(("rank", "sync"), [(1, 5), (1, 8), (0, 20)])
def test_a_rank_that_is_killed_while_it_sends_or_writes_what_was_sent_leaves_the_last_good_checkpoint(
    tmp_path, monkeypatch, undisturbed, rank, sync
):
    expected = undisturbed(2)
    (tmp_path / "disk").mkdir()
    monkeypatch.setenv("APART", "1")
    assert killed(tmp_path, 2, rank, sync, expected) == [2]


@DIVIDES
@OWN_DISKS
def test_ranks_whose_part_nobody_takes_any_more_name_the_one_that_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("APART", "1")
    monkeypatch.setenv("AT_ONCE", "1")
    (tmp_path / "disk").mkdir()
    kill(tmp_path, 3, 1, 10)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=OWN_DISKS)], ids=["one disk", "own disks"])
@pytest.mark.parametrize("at_once", [False, True], ids=["in the background", "at once"])
@pytest.mark.parametrize("attempt", range(25))
def test_a_rank_killed_in_any_save_at_any_file(tmp_path, monkeypatch, undisturbed, attempt, at_once, apart):
    size = 4 if attempt % 5 == 4 else 2
    expected = undisturbed(size)
    if at_once:
        monkeypatch.setenv("AT_ONCE", "1")
    if apart:
        monkeypatch.setenv("APART", "1")
        (tmp_path / "disk").mkdir()
    killed(tmp_path, size, attempt % size, 1 + attempt % 13, expected)


# ------------------------------------------------------------------ what is read of them


def damage(checkpoint, rank):
    """Change one bit of what a rank wrote of the weights; return the file's name."""
    path = checkpoint.path / f"learners.net.modules-r{rank:04d}.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    return path.name


@DIVIDES
def test_damage_that_one_rank_reads_is_named_on_all_and_an_older_checkpoint_is_used(tmp_path):
    for name in ("calm", "damaged"):
        (tmp_path / name).mkdir()
    _, expected, _ = on(2, tmp_path / "calm", 2)
    on(2, tmp_path / "damaged", 1)
    newest = checkpoint_overview(tmp_path / "damaged" / "run")[0]
    files = {newest.name: damage(newest, 1)}
    finished = on_ranks(PROGRAM, tmp_path / "damaged", 2)
    assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
    for each in finished:
        assert re.search(rf"{newest.name} was passed over: {files[newest.name]}: its content", each.error)
        assert "found by rank 1" in each.error
        assert said(each.out, "ends with") == [expected]
    for checkpoint in checkpoint_overview(tmp_path / "damaged" / "run"):
        files[checkpoint.name] = damage(checkpoint, checkpoint.summary.sequence % 2)
    finished = finish(start(PROGRAM, tmp_path / "damaged", 3, size=2), 60)
    for each in finished:  # none of them waits for another
        assert each.status == 1
        assert re.search(r"CheckpointError: No checkpoint in .+ can be used", each.error)
        assert re.search(r"learners\.net\.modules-r000[01]\.safetensors: its content", each.error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "why"),
    [(signal.SIGKILL, "is gone"), (signal.SIGSTOP, "was busy .* no sign of life .* is stopped")],
)
def test_a_rank_that_ends_or_stops_while_it_reads_ends_the_others(tmp_path, monkeypatch, how, why):
    on(2, tmp_path, 1)
    monkeypatch.setenv("DIES", "1")
    monkeypatch.setenv("SIGNAL", str(int(how)))
    monkeypatch.setenv("TIMEOUT", "10")
    begun = time.time()
    survivor, other = finish(start(PROGRAM, tmp_path, 2, size=2), 60, hangs=1)
    assert (survivor.status, other.status) == (1, -9)
    assert survivor.at - begun < 10 + 5 + 15  # the latter for its start
    assert re.search(rf"RankError: .* rank 1 \(process \d+ on \S+\) {why}", survivor.error)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["loss", "backward"])
def test_a_rank_that_is_gone_ends_the_others_even_where_gloo_does_not_say_so(tmp_path, where):
    """Seen once in 300 kills: torch waited for the gathered weights until the time-out."""
    begun = time.time()
    survivor, _ = finish(start(PROGRAM.with_name("unseen.py"), tmp_path, where, size=2), 80, hangs=1)
    assert survivor.status == 1
    assert survivor.at - begun < 10 + 30  # the latter for its start; the time-out is 90
    assert re.search(
        r"Traceback .*RankError: .* rank 1 \(process \d+ on \S+\) is gone", survivor.error, re.DOTALL
    )
