# SPDX-License-Identifier: Apache-2.0
"""The line to the store is slow, breaks or is away: the end of a run comes in time, and what was sent is not sent again."""

import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.mirrors import check_store, mirror_of, newest, save, sent, start
from support.slow_proxy import SlowProxy

from truestep.mirror.store_requests import MirrorObjectStore, StoreUnreachableError

PIECES = 6
SIZE = PIECES * (8 << 20) // 4  # float32


@pytest.fixture
def proxy(s3_server, s3_store, monkeypatch):
    proxy = SlowProxy(s3_server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    yield proxy
    proxy.close()


def test_what_is_under_way_at_the_deadline_is_cut_off(proxy, s3_store, tmp_path):
    mirror = mirror_of(s3_store, tmp_path / "a", lease=2.0)
    save(tmp_path / "a", 1)
    sent(mirror, 1)
    proxy.bytes_per_second = 2e6
    save(tmp_path / "a", 2, size=SIZE, varied=True)
    while not mirror.pinned:
        time.sleep(0.01)
    mirror.close(time.monotonic() + 0.5)
    begun, arrived = len(proxy.requests), proxy.bytes
    time.sleep(0.3)  # what a socket still held may arrive, and nothing begins
    assert len(proxy.requests) == begun
    assert arrived < SIZE * 4
    assert any(
        "000002-step-2 did not reach" in each and "000001-step-1 is the newest there" in each
        for each in mirror.said
    )
    proxy.bytes_per_second = float("inf")
    check_store(s3_store)
    again = mirror_of(s3_store, tmp_path / "b", lease=0.4)
    again.close()
    assert newest(tmp_path / "b") == (1, 1.0)


def test_no_request_begins_after_the_end_by_a_clock_of_the_tests_own(s3_store, proxy, monkeypatch):
    now = time.monotonic()
    objects = MirrorObjectStore(s3_store)
    objects.put("there", b"1")
    monkeypatch.setattr("truestep.mirror.store_requests.time", SimpleNamespace(monotonic=lambda: now))
    objects.set_deadline(now + 25.0)
    assert objects.get("there") == b"1"  # behind which the end is known to the thread of requests
    now += 24.9
    assert objects.get("there") == b"1"
    now += 0.1
    begun = len(proxy.requests)
    for request in (
        lambda: objects.get("there"),
        lambda: objects.put("new", b"1"),
        lambda: objects.create("new", b"1"),
        lambda: objects.remove(["there"]),
        lambda: objects.names("x/"),
        lambda: objects.folders("x/"),
        lambda: objects.changed("there"),
    ):
        with pytest.raises(StoreUnreachableError, match="the time is over"):
            request()
    assert len(proxy.requests) == begun
    objects.close()


def test_a_signal_behind_a_slow_line_ends_the_process_as_without_a_mirror(proxy, s3_store, tmp_path):
    """What is under way is cut off: at this rate the last save would take many times the grace."""
    environment = {"TRUESTEP_MIRROR": s3_store, "GRACE": "1.0", "PAUSE": "0.1"}
    process = start(tmp_path / "a", tmp_path / "end", None, **environment)
    objects = MirrorObjectStore(f"{s3_store}/run")
    while not objects.names("commits/"):
        assert process.poll() is None, process.error
        time.sleep(0.02)
    there = len(objects.names("commits/"))
    objects.close()
    proxy.bytes_per_second = 100.0
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 143, process.error
    begun = len(proxy.requests)
    time.sleep(0.3)
    assert len(proxy.requests) == begun
    proxy.bytes_per_second = float("inf")
    objects = MirrorObjectStore(f"{s3_store}/run")
    assert len(objects.names("commits/")) <= there + 1  # one was perhaps on its way
    objects.close()
    assert "did not reach" in process.error
    assert "could not be given back" in process.error


def state_of(changed: int) -> dict[str, torch.Tensor]:
    """Four weights of 4 MB, each in a file of its own; those of one are others."""
    seeds = [100 + changed, 1, 2, 3]
    weights = [torch.rand(1_000_000, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return {f"part{number}": {"weight": weight} for number, weight in enumerate(weights)}


def bytes_in(store: Path) -> int:
    return sum(path.stat().st_size for path in store.rglob("blake3-*"))


def test_of_a_state_of_which_a_quarter_changed_a_quarter_is_sent(folder_store, tmp_path):
    mirror = mirror_of(folder_store, tmp_path / "a")
    sizes = [0]
    for step in (1, 2):
        save(tmp_path / "a", step, **state_of(step))
        sent(mirror, step)
        sizes.append(bytes_in(tmp_path / "store"))
    mirror.close()
    first, second = sizes[1], sizes[2] - sizes[1]
    assert 0.2 < second / first <= 0.27


@pytest.mark.slow
def test_of_one_file_of_400_mb_of_which_a_quarter_changed_a_quarter_is_sent(folder_store, tmp_path):
    """Pieces are sent whole: a stretch within the file costs up to one more at each end (109 MB for 100 of these)."""
    mirror = mirror_of(folder_store, tmp_path / "a")
    draw = torch.Generator().manual_seed(0)
    weight = torch.rand(100_000_000, generator=draw)
    sizes = [0]
    for step in (1, 2):
        save(tmp_path / "a", step, large={"weight": weight})
        sent(mirror, step, seconds=120.0)
        sizes.append(bytes_in(tmp_path / "store"))
        weight[75_000_000:].uniform_(generator=draw)
    mirror.close()
    print(f"first {sizes[1] / 1e6:.1f} MB, a quarter changed: {(sizes[2] - sizes[1]) / 1e6:.1f} MB")
    assert 0.2 < (sizes[2] - sizes[1]) / sizes[1] <= 0.27


def test_an_upload_that_the_network_broke_sends_four_pieces_again_at_most(proxy, s3_store, tmp_path):
    mirror = mirror_of(s3_store, tmp_path / "a", lease=60.0)
    proxy.bytes_per_second = 20e6
    save(tmp_path / "a", 1, size=SIZE, varied=True)
    while proxy.bytes < 3 * (8 << 20):
        time.sleep(0.01)
    proxy.away()
    time.sleep(0.2)
    proxy.back()
    proxy.bytes_per_second = float("inf")
    sent(mirror, 1, seconds=90.0)
    mirror.close()
    assert (
        SIZE * 4 < proxy.bytes <= (PIECES + 4) * (8 << 20) + 100_000
    )  # and small objects, and what HTTP adds


def test_a_store_that_is_away_stops_nothing_and_is_caught_up(proxy, s3_store, tmp_path, monkeypatch):
    monkeypatch.setattr("truestep.mirror.mirror.SAID_AFTER_SECONDS", 0.1)
    mirror = mirror_of(s3_store, tmp_path / "a", lease=60.0)
    save(tmp_path / "a", 1)
    sent(mirror, 1)
    proxy.away()
    for step in (2, 3, 4, 5):
        save(tmp_path / "a", step)
    until = time.monotonic() + 60
    while not mirror.said:
        assert time.monotonic() < until
        time.sleep(0.05)
    mirror.check()
    proxy.back()
    sent(mirror, 5, seconds=90.0)
    mirror.close()
    assert "can't be reached" in mirror.said[0]
    assert "Training goes on" in mirror.said[0]
    mirror_of(s3_store, tmp_path / "b").close()
    assert newest(tmp_path / "b") == (5, 5.0)


def test_who_interrupts_a_start_does_not_wait_for_a_line_that_hangs(proxy, s3_store, tmp_path):
    """What asks for pieces hangs for minutes; the place is given back, and nothing is left."""
    save(tmp_path / "a", 1, **{f"part{number}": {"weight": torch.ones(number + 1)} for number in range(12)})
    mirror_of(s3_store, tmp_path / "a").close()

    def interrupt():
        while not any(b"/pieces/" in each for each in proxy.requests[begun:]):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    begun, proxy.unanswered = len(proxy.requests), b"/pieces/"
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        mirror_of(s3_store, tmp_path / "b", lease=60.0)
    interrupting.join()
    assert [path.name for path in (tmp_path / "b" / "checkpoints").iterdir()] == [".lock"]
    proxy.unanswered = None
    mirror_of(s3_store, tmp_path / "c", lease=60.0).close()
    assert newest(tmp_path / "c") == (1, 1.0)
