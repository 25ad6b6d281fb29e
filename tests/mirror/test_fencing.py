# SPDX-License-Identifier: Apache-2.0
"""A holder that is stopped before any of its requests, and woken after another has taken over, does no harm.

What it was about to ask for can't be called back. Stopped means here what SIGSTOP does: none of its threads goes on.
"""

import shutil
import threading
import time
import zlib
from pathlib import Path

import pytest
from support.mirrors import check_store, mirror_of, newest, requests_of, save, sent

from truestep.core.errors import CheckpointError, RunDirectoryError

ENOUGH = 200


class Stopped:
    """Stops a holder before one of its requests, or of those that show that it is alive: all of its threads, until it is woken."""

    def __init__(self, before: int, *, beats: bool = False) -> None:
        self.before, self.beats, self.count = before, beats, 0
        self.is_there, self.goes_on = threading.Event(), threading.Event()
        self.words = ""
        self._counting = threading.Lock()

    def __call__(self, number: int, words: str) -> None:
        with self._counting:  # how often it shows that it is alive is another number each time
            self.count += self.beats == (threading.current_thread().name == "truestep-lease")
            is_there = self.is_there.is_set() or self.count >= self.before
        if is_there:
            self.stop(words)

    def stop(self, words: str) -> None:
        if not self.goes_on.is_set():
            self.words = self.words or words
            self.is_there.set()
            self.goes_on.wait()


def first_holder(store: str, place: Path, mirrors: list) -> None:
    """Go on with a run, save twice, and end; or end once another has gone on."""
    try:
        mirror = mirror_of(store, place)
        mirrors.append(mirror)
        for step in (3, 4):
            save(place, step, -float(step))
            while mirror._thread.is_alive() and not any(
                key.endswith(f"-step-{step}") for key in [*mirror._push.commits]
            ):
                time.sleep(0.005)
        mirror.close()
    except (CheckpointError, RunDirectoryError):
        for mirror in mirrors:
            mirror.close()


def check_stopped(folder: Path, stopped: Stopped) -> bool:
    """Return whether the first holder came to be stopped; 0 harm is asserted."""
    store = (folder / "store").as_uri()
    for step in (1, 2):
        save(folder / "0", step)
    mirror_of(store, folder / "0").close()
    mirrors: list = []
    with requests_of(before=stopped):
        first = threading.Thread(target=first_holder, args=(store, folder / "a", mirrors))
        first.start()
        while first.is_alive() and not stopped.is_there.is_set():
            first.join(0.002)
    if not stopped.is_there.is_set():
        return False
    second = mirror_of(store, folder / "b", lease=4.0)
    began = newest(folder / "b")
    for step in (5, 6):
        save(folder / "b", step)
        sent(second, step)
        if step == 5:
            stopped.goes_on.set()
            first.join()
    second.close()
    assert began in ((2, 2.0), (3, -3.0), (4, -4.0))
    check_store(store)
    mirror_of(store, folder / "c").close()
    assert newest(folder / "c") == (6, 6.0)
    return True


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_holder_stopped_before_each_of_its_requests_does_no_harm(tmp_path):
    words, ended = [], 0
    turns = [*((before, False) for before in range(1, ENOUGH)), *((before, True) for before in range(1, 7))]
    for before, beats in turns:
        stopped = Stopped(before, beats=beats)
        if ended < 3 or beats:
            if check_stopped(tmp_path / "x", stopped):
                words.append(stopped.words)
            else:
                ended += 1
            shutil.rmtree(tmp_path / "x")
    print(f"stopped before {len(words)} requests: {words}")
    assert ended >= 3
    for kind in (
        "list",
        "get",
        "create commits/",
        "put pieces/",
        "put lease/",
        "remove commits/",
        "remove pieces/",
    ):
        assert any(each.startswith(kind) for each in words), kind


@pytest.mark.parametrize("kind", ["create commits/", "remove commits/", "remove pieces/"])
def test_a_holder_stopped_before_what_could_do_harm(tmp_path, kind):
    class BeforeKind(Stopped):
        def __call__(self, number, words):
            if self.is_there.is_set() or words.startswith(kind):
                self.stop(words)

    assert check_stopped(tmp_path, BeforeKind(1))


def test_what_is_wrong_is_seen_by_the_check_itself(tmp_path):
    """Were the pieces of the older number removed, `check_store` would say so."""
    store = (tmp_path / "store").as_uri()
    save(tmp_path / "a", 1)
    mirror_of(store, tmp_path / "a").close()
    for path in (tmp_path / "store" / "pieces").rglob("blake3-*"):
        if zlib.crc32(path.read_bytes()):
            path.unlink()
            break
    with pytest.raises(CheckpointError):
        check_store(store)


def test_a_fenced_holder_says_who_went_on(tmp_path):
    store = (tmp_path / "store").as_uri()
    stopped = Stopped(ENOUGH)
    with requests_of(before=stopped):
        first = mirror_of(store, tmp_path / "a")
    save(tmp_path / "a", 1)
    sent(first, 1)
    stopped.is_there.set()
    second = mirror_of(store, tmp_path / "b")
    stopped.goes_on.set()
    first._held._thread.join()
    with pytest.raises(RunDirectoryError, match=r"goes on elsewhere: process \d+ on .* took over"):
        first.check()
    second.check()
    first.close()
    second.close()
