# SPDX-License-Identifier: Apache-2.0
"""A state that is divided among processes, each of which writes what it has: it loads whole, with the bits that went in.

Whatever fails in any of them, what was saved before is untouched, and nothing half written is ever published.
"""

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torture.faults import KILLS, CountingFiles, FaultyFiles
from torture.parts import let_write, piece

from truestep.checkpoints import Checkpoint, CheckpointStore
from truestep.checkpoints.dtype_encoding import DTYPES
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.checkpoints.part_writer import CheckpointPartWriter
from truestep.core.errors import CheckpointError

WHOLE = {name: torch.arange(60.0).view(12, 5) + number for number, name in enumerate(("weight", "moment"))}


def states(step: int, size: int = 2) -> list[dict]:
    """Return what each of some processes saves: pieces, the first one also what is nobody's in particular."""
    cuts = [12 * rank // size for rank in range(size + 1)]
    parts = [
        {name: piece(whole + step, slice(a, b), slice(0, 5)) for name, whole in WHOLE.items()}
        for a, b in pairwise(cuts)
    ]
    trees = [{"learners": {"net": {"modules": part}}} for part in parts]
    return [trees[0] | {"cursor": {"step": step, "seen": torch.tensor([step])}}, *trees[1:]]


def is_of_step(found: dict, step: int) -> bool:
    modules = found["learners"]["net"]["modules"]
    return found["cursor"]["step"] == int(found["cursor"]["seen"]) == step and all(
        torch.equal(modules[name], whole + step) for name, whole in WHOLE.items()
    )


def save(directory: Path, step: int, parts: list[dict], files: CheckpointFiles | None = None) -> None:
    with CheckpointStore(directory, files=files) as store:
        let_write(store, parts[1:], files)
        store.save(step, parts[0])
        store.wait()


@st.composite
def divisions(draw):
    """Draw a tensor, and the boxes of it that each of some processes has: cut along one dimension, some of them empty."""
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    along = draw(st.integers(0, len(shape) - 1))
    cuts = sorted(draw(st.lists(st.integers(0, shape[along]), max_size=4)))
    dtype = draw(st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64"]))
    boxes = [
        [slice(a, b) if dim == along else slice(0, size) for dim, size in enumerate(shape)]
        for a, b in pairwise([0, *cuts, shape[along]])
    ]
    return dtype, tuple(shape), boxes


@settings(max_examples=40)
@given(division=divisions(), seed=st.integers(0, 2**32))
def test_pieces_load_as_the_whole_that_they_were_cut_from(division, seed, tmp_path_factory):
    dtype, shape, boxes = division
    draw = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 2, (*shape, DTYPES[dtype].element_bytes), dtype=torch.uint8, generator=draw)
    whole = raw.view(getattr(torch, dtype)).squeeze(-1)
    parts = [{"a": {"b": piece(whole, *box)}} for box in boxes]
    directory = tmp_path_factory.mktemp("parts")
    save(directory, 1, parts)
    with CheckpointStore(directory) as store:
        found = store.newest().load()["a"]["b"]
    assert (found.dtype, found.shape) == (whole.dtype, whole.shape)
    assert torch.equal(found, whole)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_each_process_has_files_of_its_own(tmp_path, size):
    save(tmp_path, 1, states(1, size))
    with CheckpointStore(tmp_path) as store:
        newest = store.newest()
        assert is_of_step(newest.load(), 1)
        expected = {f"learners.net.modules-r{rank:04d}.safetensors" for rank in range(size)}
        assert newest.manifest.files.keys() == expected | {"cursor-r0000.safetensors"}
        assert torch.equal(newest.load("learners", "net", "modules", "moment"), WHOLE["moment"] + 1)


def test_tied_pieces_are_written_once_and_tied_again(tmp_path):
    tied = [
        {"a": part, "b": part}
        for part in (
            piece(WHOLE["weight"], slice(0, 6), slice(0, 5)),
            piece(WHOLE["weight"], slice(6, 12), slice(0, 5)),
        )
    ]
    save(tmp_path, 1, tied)
    with CheckpointStore(tmp_path) as store:
        found = store.newest().load()
    assert torch.equal(found["a"], WHOLE["weight"])
    assert found["a"].data_ptr() == found["b"].data_ptr()


def test_the_next_save_holds_the_pieces_of_now(tmp_path):
    """What is kept from the last save is where they lie, not what they hold."""
    pieces = [{"a": piece(WHOLE["weight"], slice(a, a + 6), slice(0, 5))} for a in (0, 6)]
    with CheckpointStore(tmp_path) as store:
        let_write(store, pieces[1:])
        for step in (1, 2, 3):
            store.save(step, pieces[0])
            store.wait()
            assert torch.equal(store.newest().load()["a"], WHOLE["weight"] + step - 1)
            for part in pieces:
                part["a"].tensor.add_(1)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({}, "do not make a tensor"),
        ({"a": piece(torch.zeros(12, 5), slice(5, 12), slice(0, 5))}, "do not make a tensor"),
        ({"a": piece(torch.zeros(12, 5), slice(7, 12), slice(0, 5))}, "do not make a tensor"),
        ({"a": piece(torch.zeros(13, 5), slice(6, 13), slice(0, 5))}, "What rank 1 wrote .*elsewhere"),
        (
            {"a": piece(torch.zeros(12, 5).double(), slice(6, 12), slice(0, 5))},
            "What rank 1 wrote .*elsewhere",
        ),
    ],
    ids=["missing", "overlapping", "a gap", "another shape", "another dtype"],
)
def test_pieces_that_do_not_fit_together_are_never_published(tmp_path, other, reason):
    first = {"a": piece(torch.zeros(12, 5), slice(0, 6), slice(0, 5))}
    with pytest.raises(CheckpointError, match=reason):
        save(tmp_path, 1, [first, other])
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_files_that_are_not_as_long_as_said_are_never_published(tmp_path):
    class Shorter(CheckpointFiles):
        def close(self, descriptor):
            if "-r0001.safe" in Path(f"/proc/self/fd/{descriptor}").readlink().name:
                os.ftruncate(descriptor, 10)
            super().close(descriptor)

    parts = states(1)
    with CheckpointStore(tmp_path) as store:
        let_write(store, parts[1:], Shorter())
        store.save(1, parts[0])
        with pytest.raises(CheckpointError, match="has 10 bytes instead of"):
            store.wait()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


# ------------------------------------------------------------------ faults, at every operation of every process


def slow(*cases):
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]


def go_on(
    directory: Path, files: CheckpointFiles, other_files: CheckpointFiles, acknowledge=lambda: None
) -> None:
    with CheckpointStore(directory, files=files) as store:
        let_write(store, states(3)[1:], other_files)
        store.save(3, states(3)[0])
        store.wait()
        acknowledge()


def check(directory: Path, *, acknowledged: bool) -> None:
    """The last good one loads, the acknowledged one if there was one, and nothing half written is left."""
    with CheckpointStore(directory) as store:
        newest = store.newest()
        assert newest.step == 3 if acknowledged else newest.step in (2, 3)
        assert is_of_step(newest.load(), newest.step)
        assert all(isinstance(found, Checkpoint) for found in store.checkpoints())
    assert {path.name for path in directory.iterdir() if path.name.startswith(".")} == {".lock"}
    save(directory, 4, states(4))
    with CheckpointStore(directory) as store:
        assert is_of_step(store.newest().load(), 4)


def count_operations(directory: Path) -> tuple[int, int]:
    """Return how many operations the first process makes, and the other."""
    save(directory, 2, states(2))
    first, other = CountingFiles(), CountingFiles()
    go_on(directory, first, other)
    return len(first.done), len(other.done)


def faulty(who: int, number: int, kind: str) -> list[CheckpointFiles]:
    return [FaultyFiles(number, kind) if rank == who else CheckpointFiles() for rank in (0, 1)]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """Return each operation of both processes, as pairs of who makes it and its number."""
    counts = count_operations(tmp_path_factory.mktemp("count"))
    assert counts[0] > 30
    assert counts[1] >= 8  # a file and a note: created, written, synced, closed
    return [(who, number) for who in (0, 1) for number in range(counts[who])]


@pytest.mark.parametrize("kind", ["EIO", *slow("ENOSPC", "EINTR", "short write")])
def test_an_error_at_every_operation_of_every_process(kind, numbers, quick):
    for who, number in numbers:
        directory = quick / f"{who}-{number}"
        save(directory, 2, states(2))
        acknowledged: list[bool] = []
        try:
            go_on(
                directory, *faulty(who, number, kind), acknowledge=lambda seen=acknowledged: seen.append(True)
            )
        except CheckpointError:
            pass
        else:
            assert acknowledged
        check(directory, acknowledged=bool(acknowledged))


@pytest.mark.parametrize(("kind", "stride"), [(KILLS[0], 5), *slow(*((kind, 1) for kind in KILLS))])
def test_the_publisher_killed_at_every_operation(kind, stride, numbers, quick):
    for who, number in numbers:
        if who or number % stride:
            continue
        directory = quick / str(number)
        save(directory, 2, states(2))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                go_on(
                    directory, *faulty(0, number, kind), acknowledge=lambda to=writer: os.write(to, b"saved")
                )
            finally:
                os._exit(99)
        os.close(writer)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        with os.fdopen(reader, "rb") as pipe:
            check(directory, acknowledged=pipe.read() == b"saved")


@pytest.mark.parametrize("kind", KILLS)
def test_another_process_killed_at_every_operation(kind, numbers, quick):
    """The publisher lives, sees that the other is gone, and gives the checkpoint up."""
    for who, number in numbers:
        if not who:
            continue
        directory = quick / str(number)
        save(directory, 2, states(2))
        with CheckpointStore(directory) as store:
            store.others = lambda folder, at=number: lambda: killed_writer(folder, at, kind)
            store.save(3, states(3)[0])
            with pytest.raises(CheckpointError, match="rank 1 is gone"):
                store.wait()
            assert is_of_step(store.newest().load(), 2)
        check(directory, acknowledged=False)


def killed_writer(folder: Path, number: int, kind: str) -> list[int]:
    child = os.fork()
    if child == 0:
        try:
            writer = CheckpointPartWriter(
                1, tell=lambda *_: os._exit(0), background=False, files=FaultyFiles(number, kind)
            )
            writer.save(folder, states(3)[1])
        finally:
            os._exit(99)
    status = os.waitpid(child, 0)[1]
    assert status == signal.SIGKILL
    raise CheckpointError("rank 1 is gone")


def test_one_that_still_writes_for_a_publisher_that_is_gone_disturbs_nobody(tmp_path):
    """It writes into a folder that the next process has taken away, by its old name: nothing new comes in."""
    save(tmp_path, 2, states(2))
    left = tmp_path / ".tmp-000002-step-3-abcd1234"
    left.mkdir()
    said: list[str | None] = []

    class Late(CheckpointFiles):
        """The next process begins between two operations of a writer."""

        def sync(self, descriptor):
            if not said:
                said.append(None)
                with CheckpointStore(tmp_path) as store:
                    assert is_of_step(store.newest().load(), 2)
            super().sync(descriptor)

    writer = CheckpointPartWriter(1, tell=lambda _, why: said.append(why), background=False, files=Late())
    writer.save(left, states(3)[1])
    writer.close()
    assert "No such file" in said[1]
    check(tmp_path, acknowledged=False)
