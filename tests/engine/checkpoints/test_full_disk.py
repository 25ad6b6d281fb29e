# SPDX-License-Identifier: Apache-2.0
"""A disk that is really full: a save fails with the reason, what was there stays, and with room it goes on."""

import os
import subprocess

import pytest
import torch

from truestep.engine.checkpoints import CheckpointStore
from truestep.errors import CheckpointError

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


@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_a_save_that_does_not_fit(small_disk, background):
    state = {"weights": torch.ones(MIB // 2)}  # 2 MiB: the second does not fit beside the first
    with CheckpointStore(small_disk / "run", background=background) as store:
        store.save(1, state)
        with pytest.raises(
            CheckpointError, match=r"step-2 \(2,097,152 bytes\) could not be written .*No space left"
        ):
            store.save(2, state)
            store.wait()
        assert store.newest().step == 1
        assert [path.name for path in store.directory.iterdir()] == [".lock", "000001-step-1"]
        store.save(3, {"weights": torch.ones(MIB // 4)})
        assert store.newest().step == 3


def test_a_disk_without_room_for_a_single_byte(small_disk):
    with CheckpointStore(small_disk / "run") as store:
        store.save(1, {"weights": torch.ones(10)})
    (small_disk / "filler").write_bytes(b"")
    with (small_disk / "filler").open("r+b", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(bytes(4096))
    with CheckpointStore(small_disk / "run", background=False) as store:
        assert store.newest().load()["weights"].sum() == 10
        with pytest.raises(CheckpointError, match="No space left"):
            store.save(2, {"weights": torch.ones(10)})
        assert store.newest().step == 1
