# SPDX-License-Identifier: Apache-2.0
"""A fault at every file operation of opening, resuming, saving, pruning and choosing, exhaustively.

Whatever fails, and wherever a process is killed: what was acknowledged is there, whole; nothing is half
there; and the next process goes on.
"""

import os
import shutil
import signal
import warnings
from pathlib import Path

import pytest
import torch
from torture.faults import ERRORS, KILLS, CountingFiles, FaultyFiles

from truestep.checkpoints import CheckpointStore, Retention
from truestep.checkpoints.file_operations import CheckpointFiles
from truestep.core.errors import CheckpointError


def state(step: int) -> dict:
    generator = torch.Generator().manual_seed(step)
    weight = torch.randn(6, 5, generator=generator)
    return {
        "learners": {"net": {"modules": {"weight": weight}}},
        "cursor": {"step": step, "loss": float("nan")},
    }


def is_of_step(found: dict, step: int) -> bool:
    weight = found["learners"]["net"]["modules"]["weight"]
    return found["cursor"]["step"] == step and torch.equal(
        weight, state(step)["learners"]["net"]["modules"]["weight"]
    )


def start(directory: Path) -> None:
    """Make a run of three checkpoints, an attempt, and what two killed processes left."""
    with CheckpointStore(directory, background=False) as store:
        for step in (1, 2):
            store.save(step, state(step))
        store.resume()
    for name in (".tmp-000001-step-9-abcd", ".del-000000-step-0"):
        (directory / name).mkdir()
        (directory / name / "state.safetensors").write_bytes(b"half")


def go_on(directory: Path, files: CheckpointFiles, acknowledge=lambda: None) -> None:
    """Do everything a run does: open, resume, save, prune, choose, close."""
    with CheckpointStore(directory, background=False, files=files, retention=Retention(last=2)) as store:
        resumed = store.resume()
        assert is_of_step(resumed.state, resumed.checkpoint.step)
        store.save(3, state(3))
        acknowledge()
        newest = store.newest()
        assert is_of_step(newest.load(), newest.step)
        # one that can't be read just then counts for nothing, and so one more is kept
        assert len(store.checkpoints()) in (2, 3)


def count_operations(directory: Path) -> list[str]:
    start(directory)
    files = CountingFiles()
    go_on(directory, files)
    return files.done


def check(directory: Path, acknowledged: bool) -> None:
    """A fresh process finds a sound state, the acknowledged one if there was one, and goes on."""
    with CheckpointStore(directory, background=False) as store:
        damaged = [item for item in store.checkpoints() if not hasattr(item, "step")]
        assert damaged == []
        newest = store.newest()
        assert newest.step == 3 if acknowledged else newest.step in (2, 3)
        assert is_of_step(newest.load(), newest.step)
        store.save(4, state(4))
        assert is_of_step(store.newest().load(), 4)
        assert len(store.checkpoints()) == 2
    assert {path.name for path in directory.iterdir() if path.name.startswith(".")} == {".lock"}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    folder = tmp_path_factory.mktemp("started")
    start(folder)
    return folder


@pytest.fixture(scope="module")
def operations(tmp_path_factory):
    done = count_operations(tmp_path_factory.mktemp("count"))
    assert len(done) > 100
    assert set(done) >= {"rename", "sync", "write", "read", "remove", "remove_folder", "lock", "make_folder"}
    return done


def killed_at(directory: Path, number: int, kind: str) -> bool:
    """Go on in a forked process that is killed at an operation; return whether it acknowledged its save."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            go_on(directory, FaultyFiles(number, kind), lambda: os.write(writer, b"saved"))
        finally:
            os._exit(99)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read() == b"saved"


# after one operation the files are as before the next
@pytest.mark.parametrize("kind", [KILLS[0], pytest.param(KILLS[1], marks=pytest.mark.slow)])
def test_killed_at_every_operation(kind, operations, started, quick):
    for number in range(len(operations)):
        directory = shutil.copytree(started, quick / str(number))
        check(directory, killed_at(directory, number, kind))


def fails_at(directory: Path, number: int, kind: str, *, lasting: bool = False) -> tuple[bool, bool]:
    """Go on with a fault; return whether the save was acknowledged, and whether an error was raised."""
    acknowledged: list[bool] = []
    files = FaultyFiles(number, kind, lasting=lasting)
    try:
        go_on(directory, files, lambda: acknowledged.append(True))
    except CheckpointError:
        return bool(acknowledged), True
    assert files.met is not None
    return bool(acknowledged), False


@pytest.mark.sliced(2)
@pytest.mark.parametrize("kind", [*ERRORS, "short write"])
def test_an_error_at_every_operation(kind, operations, started, quick):
    before = open_descriptors()
    for number, name in enumerate(operations):
        if kind == "short write" and name != "write":
            continue
        directory = shutil.copytree(started, quick / str(number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one that can't be read is passed over with a warning
            acknowledged, failed = fails_at(directory, number, kind)
        assert acknowledged or failed
        if kind == "short write" or (kind == "EINTR" and name in ("read", "write", "sync")):
            assert not failed, f"{name} number {number} should have gone on"
        check(directory, acknowledged)
        assert open_descriptors() == before, f"{name} number {number} leaves a descriptor open"


@pytest.mark.sliced(2)
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC"])
def test_a_disk_that_fails_for_good_from_any_operation_on(kind, operations, started, quick):
    for number in range(len(operations)):
        directory = shutil.copytree(started, quick / str(number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            acknowledged, _ = fails_at(directory, number, kind, lasting=True)
        check(directory, acknowledged)


def test_a_failed_sync_is_never_taken_for_success(operations, started, quick):
    syncs = [number for number, name in enumerate(operations) if name == "sync"]
    save = operations.index("make_folder")
    of_the_save = [number for number in syncs if number > save][
        :4
    ]  # a file, the manifest, the folder, its parent
    for number in of_the_save:
        directory = shutil.copytree(started, quick / str(number))
        assert fails_at(directory, number, "EIO") == (False, True)
        assert sorted(path.name for path in directory.iterdir())[-2].endswith(("step-1", "step-2"))
