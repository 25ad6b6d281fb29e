# SPDX-License-Identifier: Apache-2.0
"""A directory with checkpoints and a mirror of it, without a training; every request of a holder can be stopped or broken."""

import os
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch

from truestep.checkpoints import CheckpointStore, Retention
from truestep.mirror import opening as opening_module
from truestep.mirror.lease import newest_lease, valid_commits
from truestep.mirror.mirror import RunMirror
from truestep.mirror.opening import MirrorOpenOptions, open_mirror
from truestep.mirror.pull import download_piece, read_sound_commits
from truestep.mirror.store_requests import MirrorObjectStore

from . import warm

RETENTION = Retention(last=2)
LEASE = 0.4
TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "mirror" / "whole_run.py"


def mirror_of(
    address: str,
    directory: Path,
    said: list[str] | None = None,
    *,
    lease: float = LEASE,
    resume: str = "auto",
) -> RunMirror:
    """Open the mirror of a directory."""
    opening = MirrorOpenOptions(address, directory, resume, RETENTION, lease)
    return open_mirror(opening, ([] if said is None else said).append)


def save(
    directory: Path,
    step: int,
    value: float | None = None,
    *,
    size: int = 10,
    varied: bool = False,
    **more: object,
) -> None:
    """Save a checkpoint as a run does; `value` is what its weights are, the step unless it is said, or each another number.

    `more` is added to the state.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "config.json"
    if not config.exists():
        config.write_text('{"schema_version": 1}')
    with (directory / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": %d}\n' % step)
    lines = (directory / "metrics.jsonl").read_bytes()
    weight = torch.full((size,), float(step if value is None else value))
    state = {
        "net": {"weight": weight + torch.arange(size) if varied else weight},
        "logbook": {"mark": [len(lines), zlib.crc32(lines)]},
        **more,
    }
    with CheckpointStore(directory / "checkpoints", background=False, retention=RETENTION) as store:
        store.save(step, state)


def newest(directory: Path) -> tuple[int, float] | None:
    """Return step and value of the newest sound checkpoint of a directory, every byte of which is looked at."""
    with CheckpointStore(directory / "checkpoints", retention=RETENTION) as store:
        found = store.newest()
        return None if found is None else (found.step, found.load()["net"]["weight"].mean().item())


def sent(mirror: RunMirror, step: int, seconds: float = 20.0) -> None:
    """Wait until a checkpoint is in the store."""
    until = time.monotonic() + seconds
    while not any(key.endswith(f"-step-{step}") for key in [*mirror._push.commits]):
        assert time.monotonic() < until, mirror.said
        mirror._ending.wait(0.005)


def start(place: Path, out: Path, mirror: str | None, **more: str) -> warm.Process:
    """Start a process on a machine of its own: it sees that folder alone."""
    place.mkdir(parents=True)
    paths = os.pathsep.join(filter(None, (warm.paths(), str(TESTS))))
    env = {
        **os.environ,
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "TRUESTEP_MIRROR_LEASE_SECONDS": "0.6",
        **more,
    }
    env |= {"TRUESTEP_MIRROR": mirror} if mirror else {}
    return warm.Process(str(SCRIPT), str(out), cwd=place, env=env)


def check_store(store: str) -> None:
    """Each commit that counts is sound to the last piece."""
    objects = MirrorObjectStore(store)
    keys = valid_commits(objects, newest_lease(objects))
    passed = []
    commits = read_sound_commits(objects, keys, passed.append)
    assert passed == []
    for commit in commits.values():
        for piece in commit.pieces:
            download_piece(objects, piece)
    objects.close()


class Requests(MirrorObjectStore):
    """Calls `before` with the number and the words of each request; what it raises is raised in the request's place."""

    before: Callable[[int, str], None] = staticmethod(lambda number, words: None)
    after: Callable[[int, str], None] = staticmethod(lambda number, words: None)

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.count = 0
        self._counting = threading.Lock()

    def _asked(self, words: str, request: Callable[[], object]) -> object:
        with self._counting:
            self.count += 1
            number = self.count
        type(self).before(number, words)
        try:
            return request()
        finally:
            type(self).after(number, words)

    def names(self, prefix):
        return self._asked(f"list {prefix}", lambda: super(Requests, self).names(prefix))

    def get(self, path):
        return self._asked(f"get {path}", lambda: super(Requests, self).get(path))

    def create(self, path, data, **more):
        return self._asked(f"create {path}", lambda: super(Requests, self).create(path, data, **more))

    def put(self, path, data):
        return self._asked(f"put {path}", lambda: super(Requests, self).put(path, data))

    def remove(self, paths):
        for path in paths:
            self._asked(f"remove {path}", lambda path=path: super(Requests, self).remove([path]))


class requests_of:
    """Within this block mirrors are opened with such requests."""

    def __init__(self, before=None, after=None) -> None:
        nothing = staticmethod(lambda number, words: None)
        self.kind = type("Told", (Requests,), {"before": before or nothing, "after": after or nothing})
        self.kind.before = staticmethod(before) if before else nothing
        self.kind.after = staticmethod(after) if after else nothing

    def __enter__(self):
        self._there, opening_module.MirrorObjectStore = opening_module.MirrorObjectStore, self.kind
        return self

    def __exit__(self, *_):
        opening_module.MirrorObjectStore = self._there
