# SPDX-License-Identifier: Apache-2.0
"""A run that is killed again and again, each time with its disk, ends with the bits and metrics of one that never was."""

import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from support import warm
from support.mirrors import start
from support.ranks import free_port

from truestep.mirror.store_requests import MirrorObjectStore


def start_ranks(place: Path, out: Path, mirror: str | None, ranks: int, **more: str) -> list[warm.Process]:
    """Start the processes of a training, each on its own disk; one process needs no other."""
    if ranks == 1:
        return [start(place / "0", out.with_name(f"{out.name}-0"), mirror, **more)]
    more |= {"WORLD_SIZE": str(ranks), "MASTER_PORT": str(free_port()), "LOCAL_RANK": "0"}
    return [
        start(place / str(rank), out.with_name(f"{out.name}-{rank}"), mirror, RANK=str(rank), **more)
        for rank in range(ranks)
    ]


def ended(process: warm.Process, seconds: float = 240.0) -> int:
    return process.wait(seconds)


def check_kills(folder: Path, store: str, kills: int, *, seed: int, ranks: int = 1, **more: str) -> None:
    """Kill all ranks by SIGKILL at random moments behind the first commit; each start finds empty folders."""
    dice = random.Random(seed)
    for process in start_ranks(folder / "undisturbed", folder / "expected", None, ranks, **more):
        assert ended(process) == 0, process.error
    made = 0
    for number in range(10 * kills):
        place, waits = folder / f"machine-{number}", {"PAUSE": "0.1", "HOLDS": ""} if made < kills else {}
        processes = start_ranks(place, folder / "end", store, ranks, **waits, **more)
        process, log = processes[0], place / "0" / "run" / "metrics.jsonl"
        until, left = time.monotonic() + 60, dice.uniform(0.05, 0.5)
        while made < kills and process.poll() is None and time.monotonic() < until:
            if log.exists() and left > 0:  # it trains: a moment is drawn from then on
                until, left = time.monotonic() + left, 0.0
            time.sleep(0.01)
        if made < kills:
            for each in dice.sample(processes, ranks):
                if each.poll() is None:
                    each.kill()
        statuses = {ended(each) for each in processes}
        if statuses == {0}:
            break
        # whoever noticed that the other was gone ended by itself
        assert -signal.SIGKILL in statuses <= {-signal.SIGKILL, 1}, [each.error for each in processes]
        made += 1
        shutil.rmtree(place)
    assert made == kills
    for rank in range(ranks):
        assert (folder / f"end-{rank}").read_text() == (folder / f"expected-{rank}").read_text()


@pytest.mark.timeout(240)
def test_two_kills_with_an_empty_folder_each_and_secrets_are_nowhere(tmp_path, s3_store):
    check_kills(tmp_path, s3_store, 2, seed=1)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"planted-" in path.read_bytes()]
    objects = MirrorObjectStore(f"{s3_store}/run")
    there = [*objects.names("commits/"), *objects.names("lease/"), *objects.names("pieces/")]
    assert len(there) > 5
    assert not [path for path in there if b"planted-" in objects.get(path)]
    objects.close()


@pytest.mark.timeout(240)
def test_two_ranks_with_disks_of_their_own_go_on_from_the_mirror(tmp_path):
    check_kills(tmp_path, (tmp_path / "store").as_uri(), 1, seed=2, ranks=2)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_twenty_kills_with_twenty_empty_folders(tmp_path, store, workers, ranks):
    check_kills(tmp_path, store, 20, seed=3, ranks=ranks, WORKERS=workers)


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
