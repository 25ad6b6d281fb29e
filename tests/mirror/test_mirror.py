# SPDX-License-Identifier: Apache-2.0
"""A directory's checkpoints go to a store and come back on an empty machine; one process at a time writes there."""

import os
import shutil
import threading
import time

import pytest
import torch
from support import warm
from support.mirrors import TESTS, mirror_of, newest, requests_of, save, sent

from truestep.core.errors import CheckpointError, RunDirectoryError


def test_an_empty_directory_gets_what_was_sent(store, tmp_path):
    mirror = mirror_of(store, tmp_path / "a")
    for step in (1, 2, 3):
        save(tmp_path / "a", step)
        sent(mirror, step)
    mirror.close()
    said = []
    mirror_of(store, tmp_path / "b", said).close()
    assert newest(tmp_path / "b") == (3, 3.0)
    for name in ("config.json", "metrics.jsonl"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    assert "000003-step-3 fetched from" in said[0]


def test_the_metrics_are_those_before_the_checkpoint(store, tmp_path):
    with (tmp_path / "later").open("wb"):
        pass
    save(tmp_path / "a", 1)
    before = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    with (tmp_path / "a" / "metrics.jsonl").open("ab") as file:
        file.write(b"half a li")
    mirror_of(store, tmp_path / "a").close()
    mirror_of(store, tmp_path / "b").close()
    assert (tmp_path / "b" / "metrics.jsonl").read_bytes() == before


def test_what_did_not_change_is_not_sent_again(folder_store, tmp_path):
    pieces = tmp_path / "store" / "pieces"
    mirror = mirror_of(folder_store, tmp_path / "a")
    save(tmp_path / "a", 1, 5.0, size=5_000_000)
    sent(mirror, 1)
    large = {path for path in pieces.rglob("*") if path.stat().st_size > 1_000_000}
    assert len(large) == 3  # of 20 MB, two pieces of which are alike
    save(tmp_path / "a", 2, 5.0, size=5_000_000)
    sent(mirror, 2)
    mirror.close()
    again = mirror_of(folder_store, tmp_path / "a")
    save(tmp_path / "a", 3, 5.0, size=5_000_000)
    sent(again, 3)
    again.close()
    assert large == {path for path in pieces.rglob("*") if path.is_file() and path.stat().st_size > 1_000_000}


def test_a_holder_at_work_is_named(store, tmp_path):
    mirror = mirror_of(store, tmp_path / "a")
    with pytest.raises(RunDirectoryError, match=r"is in use by process \d+ on .*, which is at work"):
        mirror_of(store, tmp_path / "b")
    mirror.close()
    mirror_of(store, tmp_path / "b").close()


@pytest.mark.parametrize("resume", ["never", "anew"])
def test_a_run_that_is_there_is_not_begun_anew(folder_store, tmp_path, resume):
    save(tmp_path / "a", 1)
    mirror_of(folder_store, tmp_path / "a").close()
    with pytest.raises(
        RunDirectoryError, match=r'holds a run already.*another address, ts.Run\(..., mirror="file://.*-2"\)'
    ):
        mirror_of(folder_store, tmp_path / "b", resume=resume)


def test_must_is_met_by_the_store_alone(folder_store, tmp_path):
    with pytest.raises(RunDirectoryError, match="neither does the mirror"):
        mirror_of(folder_store, tmp_path / "b", resume="must")
    save(tmp_path / "a", 1)
    mirror_of(folder_store, tmp_path / "a").close()
    mirror_of(folder_store, tmp_path / "b", resume="must").close()
    assert newest(tmp_path / "b") == (1, 1.0)


def test_a_directory_that_the_store_knows_nothing_of_is_refused(folder_store, tmp_path):
    save(tmp_path / "a", 1)
    mirror_of(folder_store, tmp_path / "a").close()
    save(tmp_path / "b", 7)
    with pytest.raises(RunDirectoryError, match="knows nothing of"):
        mirror_of(folder_store, tmp_path / "b")
    assert newest(tmp_path / "b") == (7, 7.0)


def test_what_is_newer_on_the_disk_goes_on(folder_store, tmp_path):
    save(tmp_path / "a", 1)
    mirror_of(folder_store, tmp_path / "a").close()
    save(tmp_path / "a", 2)
    mirror = mirror_of(folder_store, tmp_path / "a")
    sent(mirror, 2)
    mirror.close()
    assert newest(tmp_path / "a") == (2, 2.0)


def test_a_run_that_went_on_elsewhere_leaves_the_disk_in_the_past(folder_store, tmp_path):
    save(tmp_path / "a", 1)
    mirror_of(folder_store, tmp_path / "a").close()
    save(tmp_path / "a", 2, -2.0)  # never sent
    elsewhere = mirror_of(folder_store, tmp_path / "b")
    save(tmp_path / "b", 2)
    save(tmp_path / "b", 3)
    sent(elsewhere, 3)
    elsewhere.close()
    said = []
    mirror_of(folder_store, tmp_path / "a", said).close()
    assert newest(tmp_path / "a") == (3, 3.0)
    assert any("went on elsewhere" in each for each in said)


def test_attempts_are_counted_on_fresh_machines(folder_store, tmp_path):
    save(tmp_path / "0", 1)
    save(tmp_path / "0", 2)
    mirror = mirror_of(folder_store, tmp_path / "0")
    sent(mirror, 2)
    mirror.close()
    for number in (1, 2, 3):
        place = tmp_path / str(number)
        mirror = mirror_of(folder_store, place)
        names = sorted(path.name for path in (place / "checkpoints").glob(".attempt-*"))
        assert len(names) == number - 1
        (place / "checkpoints" / f".attempt-000002-step-2-{number}").touch()
        mirror.flush_marks(10.0)
        mirror.close()
    mirror_of(folder_store, tmp_path / "4").close()
    assert newest(tmp_path / "4") in ((1, 1.0), (2, 2.0))


MACHINE = """
import sys, time
from pathlib import Path
from support.mirrors import mirror_of
from truestep.core.errors import RunDirectoryError

store, begin, end = sys.argv[1], Path("begin"), Path("end")
Path(f"there-{sys.argv[2]}").touch()
while not begin.exists():
    time.sleep(0.001)
try:
    mirror = mirror_of(store, Path(sys.argv[2]), lease=6.0)
except RunDirectoryError:
    print("refused")
else:
    print("held", flush=True)
    while not end.exists():
        time.sleep(0.01)
    mirror.close()
"""


def wait_until(done, seconds=120.0):
    until = time.monotonic() + seconds
    while not done() and time.monotonic() < until:
        time.sleep(0.005)


@pytest.mark.parametrize("races", [2, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_of_eight_one_gets_the_lease(store, tmp_path, races):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (warm.paths(), str(TESTS))))}
    for race in range(races):  # each second one is for a place that its holder gave back
        here, address = tmp_path / str(race), f"{store}/{race // 2}"
        here.mkdir()
        machines = [
            warm.Process("-c", MACHINE, address, str(number), cwd=here, env=env) for number in range(8)
        ]
        try:
            wait_until(lambda here=here: len([*here.glob("there-*")]) == 8)
            (here / "begin").touch()
            wait_until(lambda machines=machines: sum(each.poll() is None for each in machines) <= 1)
        finally:
            for name in ("begin", "end"):
                (here / name).touch()
        assert [each.wait() for each in machines] == [0] * 8, [each.error for each in machines]
        assert sorted(each.output for each in machines) == ["held\n", *["refused\n"] * 7]


def damaged(data: bytes) -> list[bytes]:
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    return [bytes(flipped), data[:-1], b"", b"{}"]


def test_every_damaged_object_is_passed_over_or_an_error(folder_store, tmp_path):
    for step in (1, 2):
        save(tmp_path / "a", step)
        mirror_of(folder_store, tmp_path / "a").close()
    objects = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    seen = set()
    for number, path in enumerate(objects):
        content = path.read_bytes()
        for kind, bad in enumerate([*damaged(content), None] if content else []):
            leases = {each: each.read_bytes() for each in (tmp_path / "store" / "lease").iterdir()}
            path.unlink() if bad is None else path.write_bytes(bad)
            place = tmp_path / f"b-{number}-{kind}"
            try:
                mirror_of(folder_store, place, lease=0.2).close()
                seen.add(newest(place))
            except (CheckpointError, RunDirectoryError) as error:
                seen.add(type(error))
            for each in (tmp_path / "store" / "lease").iterdir():
                each.unlink()
            for each, data in leases.items():
                each.write_bytes(data)
            path.write_bytes(content)
    assert seen <= {(1, 1.0), (2, 2.0), CheckpointError, RunDirectoryError}
    assert {(1, 1.0), (2, 2.0)} <= seen


def test_what_is_pruned_before_it_is_sent_is_no_news(folder_store, tmp_path, monkeypatch):
    mirror = mirror_of(folder_store, tmp_path / "a")
    find = mirror._push.wanted

    def wanted(there):
        found = find(there)
        for each in found if len(found) == 1 and found[0].step == 1 else []:
            shutil.rmtree(each.path)
        return found

    monkeypatch.setattr(mirror._push, "wanted", wanted)
    for step in (1, 2):
        save(tmp_path / "a", step)
    sent(mirror, 2)
    mirror.close()
    assert not mirror.said


def test_who_is_refused_does_not_wait_for_the_download(folder_store, tmp_path):
    """What is fetched meanwhile comes once nobody asks for it any more."""
    save(tmp_path / "a", 1, **{f"part{number}": {"weight": torch.ones(number + 1)} for number in range(12)})
    holder = mirror_of(folder_store, tmp_path / "a", lease=2.0)
    sent(holder, 1)
    fetched, refused = [], threading.Event()

    def slow(_, words):
        if words.startswith("get pieces/") and not refused.is_set():
            fetched.append(words)
            refused.wait(3.0)

    with requests_of(before=slow) as asked:
        close = asked.kind.close
        asked.kind.close = lambda objects: (close(objects), refused.set())
        with pytest.raises(RunDirectoryError, match="which is at work"):
            mirror_of(folder_store, tmp_path / "b", lease=2.0)
    holder.close()
    assert len(fetched) <= 4  # those that were under way
    assert [path.name for path in (tmp_path / "b" / "checkpoints").iterdir()] in ([], [".lock"])
