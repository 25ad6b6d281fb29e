# SPDX-License-Identifier: Apache-2.0
"""A disk that is really full: a save fails with the reason, what was there stays, and it goes on."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from truestep.checkpoints import CheckpointStore
from truestep.core.errors import CheckpointError

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={4 * MIB}", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def save_and_wait(store: CheckpointStore, step: int, state: dict) -> None:
    store.save(step, state)
    store.wait()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_a_save_that_does_not_fit(small_disk, background):
    state = {"weights": torch.ones(MIB // 2)}  # 2 MiB: the second does not fit beside the first
    with CheckpointStore(small_disk / "run", background=background) as store:
        store.save(1, state)
        with pytest.raises(CheckpointError, match=r"step-2 \(2,097,152 bytes\) .*No space left"):
            save_and_wait(store, 2, state)
        assert store.newest().step == 1
        assert {path.name for path in store.directory.iterdir()} == {".lock", "000001-step-1"}
        store.save(3, {"weights": torch.ones(MIB // 4)})
        assert store.newest().step == 3


def test_a_disk_without_room_for_a_single_byte(small_disk):
    with CheckpointStore(small_disk / "run") as store:
        store.save(1, {"weights": torch.ones(10)})
    with pytest.raises(OSError, match="No space"):
        fill(small_disk / "filler")
    with CheckpointStore(small_disk / "run", background=False) as store:
        assert store.newest().load()["weights"].sum() == 10
        with pytest.raises(CheckpointError, match="No space left"):
            store.save(2, {"weights": torch.ones(10)})
        assert store.newest().step == 1
