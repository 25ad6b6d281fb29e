# SPDX-License-Identifier: Apache-2.0
"""A run that is killed again and again, each time with its disk, ends with the bits and metrics of one that never was."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from support import warm

from truestep.mirror.objects import MirrorObjects

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "mirror" / "whole_run.py"
LEASE = "0.6"


def start(place: Path, out: Path, mirror: str | None, **more: str) -> warm.Process:
    place.mkdir(parents=True)
    paths = os.pathsep.join(filter(None, (warm.paths(), str(TESTS))))
    env = {
        **os.environ,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "TRUESTEP_MIRROR_LEASE_SECONDS": LEASE,
        **more,
    }
    env |= {"TRUESTEP_MIRROR": mirror} if mirror else {}
    return warm.Process(str(SCRIPT), str(out), cwd=place, env=env)


def ended(process: warm.Process, seconds: float = 240.0) -> int:
    return process.wait(seconds)


def check_kills(folder: Path, store: str, kills: int, *, seed: int, **more: str) -> None:
    """Kill by SIGKILL at random moments behind the first commit; each start finds an empty folder."""
    dice = random.Random(seed)
    undisturbed = start(folder / "undisturbed", folder / "expected", None, **more)
    assert ended(undisturbed) == 0, undisturbed.error
    made = 0
    for number in range(10 * kills):
        place, pause = folder / f"machine-{number}", "0.05" if made < kills else "0"
        process = start(place, folder / "end", store, PAUSE=pause, **more)
        log = place / "run" / "metrics.jsonl"
        until, left = time.monotonic() + 60, dice.uniform(0.05, 0.8)
        while made < kills and process.poll() is None and time.monotonic() < until:
            if log.exists() and left > 0:  # it trains: a moment is drawn from then on
                until, left = time.monotonic() + left, 0.0
            time.sleep(0.01)
        if made < kills and process.poll() is None:
            process.kill()
        status = ended(process)
        if status == 0:
            break
        assert status == -signal.SIGKILL, process.error
        made += 1
        shutil.rmtree(place)
    assert made >= min(kills, 2)
    assert (folder / "end").read_text() == (folder / "expected").read_text()


@pytest.mark.timeout(240)
def test_two_kills_with_an_empty_folder_each_and_secrets_are_nowhere(tmp_path, s3_store):
    check_kills(tmp_path, s3_store, 2, seed=1)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"planted-" in path.read_bytes()]
    objects = MirrorObjects(f"{s3_store}/run")
    there = [*objects.names("commits/"), *objects.names("lease/"), *objects.names("pieces/")]
    assert len(there) > 5
    assert not [path for path in there if b"planted-" in objects.get(path)]
    objects.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_twenty_kills_with_twenty_empty_folders(tmp_path, store, workers):
    check_kills(tmp_path, store, 20, seed=3, WORKERS=workers)


def test_a_signal_sends_the_last_save_before_the_process_ends(tmp_path):
    store = (tmp_path / "store").as_uri()
    process = start(tmp_path / "a", tmp_path / "end", store, PAUSE="0.2")
    log = tmp_path / "a" / "run" / "metrics.jsonl"
    while not log.exists():
        assert process.poll() is None, process.error
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 143, process.error
    newest = max(path.name for path in (tmp_path / "a" / "run" / "checkpoints").iterdir())
    assert newest in {path.name for path in (tmp_path / "store" / "run" / "commits").rglob("*-step-*")}
    again = start(tmp_path / "b", tmp_path / "end", store)
    assert ended(again) == 0, again.error
    assert "going on from" in again.error
