# SPDX-License-Identifier: Apache-2.0
"""The line to the store is slow, breaks or is away: the end of a run comes in time, and what was sent is not sent again."""

import time

import pytest
from support.mirrors import check_store, mirror_of, newest, requests_of, save, sent
from support.slow_proxy import SlowProxy

from truestep.mirror.objects import StoreAwayError

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


def test_an_upload_that_broke_sends_few_pieces_again(folder_store, tmp_path):
    sent_pieces = []

    def breaks(_, words):
        if words.startswith("put pieces/"):
            sent_pieces.append(words)
            if len(sent_pieces) == PIECES - 1:
                raise StoreAwayError("the line was cut")

    with requests_of(before=breaks):
        mirror = mirror_of(folder_store, tmp_path / "a")
        save(tmp_path / "a", 1, size=SIZE, varied=True)
        sent(mirror, 1)
        mirror.close()
    others = 3  # the configuration, the metrics, the end of the file
    assert len(sent_pieces) <= PIECES + others + 4


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
