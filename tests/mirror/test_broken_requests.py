# SPDX-License-Identifier: Apache-2.0
"""Every request failed, or its answer lost, one at a time: nothing wrong is gone on from, and no half commit is seen."""

import shutil

import pytest
from support.mirrors import check_store, mirror_of, newest, requests_of, save, sent

from truestep.core.errors import CheckpointError, RunDirectoryError
from truestep.mirror.store_requests import StoreUnreachableError

ENOUGH = 200


class Broken:
    """Breaks one request, before it reaches the store or behind it."""

    def __init__(self, number: int) -> None:
        self.number, self.words = number, ""

    def __call__(self, number: int, words: str) -> None:
        if number == self.number:
            self.words = words
            raise StoreUnreachableError("the line was cut")


def check_broken(folder, broken: Broken, how: str) -> str:
    """Return which request it was; empty where there were fewer."""
    store = (folder / "store").as_uri()
    for step in (1, 2):
        save(folder / "0", step)
    mirror_of(store, folder / "0").close()
    with requests_of(**{how: broken}):
        try:
            mirror = mirror_of(store, folder / "a")
            for step in (3, 4):
                save(folder / "a", step)
                sent(mirror, step)
            mirror.close()
            left = {(4, 4.0)}
        except (CheckpointError, RunDirectoryError):  # at the start: it is said, and nothing is begun anew
            left = {(2, 2.0)}
    check_store(store)
    mirror_of(store, folder / "b", lease=0.2).close()
    assert newest(folder / "b") in left, broken.words
    return broken.words


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", ["before", "after"])
def test_every_request_fails_once(tmp_path, how):
    words, ended = [], 0
    for number in range(1, ENOUGH):
        said = check_broken(tmp_path / "x", Broken(number), how)
        words += [said] if said else []
        ended += not said
        shutil.rmtree(tmp_path / "x")
        if ended == 6:  # how many there are depends on how often the lease was renewed
            break
    print(f"broke {len(words)} requests")
    assert 20 < len(words) < ENOUGH - 1


@pytest.mark.sliced(3)
@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("kind", ["create lease/", "create commits/", "put pieces/", "remove pieces/"])
def test_a_request_of_each_kind_fails_once(tmp_path, how, kind):
    class BreaksKind(Broken):
        def __call__(self, number, words):
            if not self.words and words.startswith(kind):
                super().__call__(self.number, words)
                self.words = words
                raise StoreUnreachableError("the line was cut")

    assert check_broken(tmp_path, BreaksKind(0), how)
