# SPDX-License-Identifier: Apache-2.0
"""A damaged checkpoint is refused by name with the reason; none of it is run, and memory is bounded."""

import json
import os
import traceback
from collections import Counter
from pathlib import Path

import pytest
import torch
from support.manifests import opened, sealed
from torture import damage
from torture.damage import Verdicts

from truestep.checkpoints import Checkpoint, CheckpointStore, verify
from truestep.checkpoints.manifest import MANIFEST_NAME
from truestep.core.errors import CheckpointError


def in_a_process(work) -> dict:
    """Run in a forked process, since an audit hook can't be taken back, and return its JSON result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = json.loads(pipe.read())
    os.waitpid(child, 0)
    return result


def tortured(folder: Path, count: int, seed: int = 0) -> Verdicts:
    result = in_a_process(lambda: vars(damage.torture(folder, count, seed)))
    return Verdicts(**{**result, "refused": Counter(result["refused"]), "loaded": Counter(result["loaded"])})


def check(folder: Path, count: int) -> None:
    verdicts = tortured(folder, count)
    assert verdicts.loaded == {}
    assert verdicts.ran_code == []
    assert verdicts.unexplained == []
    assert sum(verdicts.refused.values()) > 0.98 * count
    assert set(verdicts.refused) == {make.__name__ for make in damage.DAMAGES}
    # many small ones: what grows is the allocator's, and bounded
    assert verdicts.memory_grown_bytes < 64 << 20


def test_six_hundred_damaged_checkpoints(tmp_path):
    check(tmp_path, 600)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_damaged_checkpoints(tmp_path):
    check(tmp_path, 100_000)


class EqualToAll(str):
    """A checksum that is never found to differ."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __ne__(self, other):
        return False


def test_a_reader_that_compares_no_checksums_is_caught(tmp_path, monkeypatch):
    def read(*arguments):
        header, checksum = original(*arguments)
        return header, EqualToAll(checksum)

    original = verify._read_header_and_tensors
    monkeypatch.setattr(verify, "_read_header_and_tensors", read)
    assert tortured(tmp_path, 300).loaded["flip_a_bit"]


def peak_growth(folder: Path) -> int:
    """Try to load in a fresh process and return by how many bytes its memory grew at most."""

    def work() -> int:
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak to what is used now
        before = peak()
        with pytest.raises(CheckpointError):
            Checkpoint.open(folder).load()
        return peak() - before

    def peak() -> int:
        line = next(
            line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
        )
        return int(line.split()[1]) * 1024

    return in_a_process(work)


SIZE = 64 << 20


@pytest.mark.parametrize(
    "case",
    ["flipped at the end", "cut off", "longer", "huge file", "huge manifest", "claims to be huge", "header"],
)
def test_memory_stays_below_twice_the_largest_file(case, tmp_path):
    with CheckpointStore(tmp_path, background=False) as store:
        store.save(1, {"net": {"weight": torch.zeros(SIZE // 8), "other": torch.ones(SIZE // 8)}})
        folder = store.newest().path
    file = folder / "net-r0000.safetensors"
    match case:
        case "flipped at the end":
            with file.open("r+b") as stream:
                stream.seek(-1, os.SEEK_END)
                stream.write(b"x")
        case "cut off":
            os.truncate(file, SIZE // 2)
        case "longer":
            os.truncate(file, 2 * SIZE)
        case "huge file":
            os.truncate(file, 1 << 40)
        case "huge manifest":
            os.truncate(folder / MANIFEST_NAME, 900 << 20)
        case "claims to be huge":
            manifest = opened((folder / MANIFEST_NAME).read_bytes())
            manifest["shapes"][0] = [1 << 36]
            (folder / MANIFEST_NAME).write_bytes(sealed(manifest))
        case "header":
            with file.open("r+b") as stream:
                stream.write((SIZE - 100).to_bytes(8, "little"))
    assert peak_growth(folder) < 2 * SIZE
