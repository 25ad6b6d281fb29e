# SPDX-License-Identifier: Apache-2.0
"""Waiting: for numbers that an accelerator has yet to compute, and at the end for threads that ask the store."""

import re
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._utils import ExceptionWrapper

from truestep.core.errors import OptionError, RankError
from truestep.engine.processes import world as worlds
from truestep.engine.processes.store_notes import RankProcess
from truestep.engine.processes.world import RankInWorld, World, WorldLinks


@pytest.fixture
def world(monkeypatch):
    """A world of one rank that looks around every few milliseconds."""
    monkeypatch.setattr(worlds, "POLL", timedelta(milliseconds=5))
    links = WorldLinks("control", "data", dist.HashStore(), lambda: None)
    found = World(RankInWorld(0, 1, 0), links, timeout_seconds=600)
    yield found
    found.close()


def computed_after(monkeypatch, looks):
    """Have a device be done when it has been asked so often; return how often it has been."""
    asked = []

    def is_done():
        asked.append(1)
        return len(asked) > looks

    monkeypatch.setattr(worlds, "make_completion_query", lambda tensor: is_done)
    return asked


@pytest.mark.parametrize("looks", [0, 1, 20])
def test_numbers_are_read_when_the_device_is_done(world, monkeypatch, looks):
    asked = computed_after(monkeypatch, looks)
    assert world.numbers_of(torch.tensor([1.0, 2.0]), "an update of 'net'") == [1.0, 2.0]
    assert len(asked) == looks + 1


def test_a_rank_that_raises_ends_the_waiting_for_numbers_that_never_come(world, monkeypatch):
    computed_after(monkeypatch, 10**9)
    world.notes.record_failure(1, "rank 1 (process 7 on here) raised ValueError: a bad batch")
    with pytest.raises(RankError, match=r"rank 1 .* raised ValueError: a bad batch"):
        world.numbers_of(torch.ones(1), "an update of 'net'")
    world.error = None  # (its end is an exit of the process)


def fail(error, *, by_worker):
    """Raise an error, as torch raises that of a worker if it is one's."""
    try:
        raise error
    except type(error):
        if not by_worker:
            raise
        of_worker = ExceptionWrapper(where="in DataLoader worker process 1")
    of_worker.reraise()


@pytest.mark.parametrize("by_worker", [False, True])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("a bad sample"), "ValueError: a bad sample"),
        (OptionError("first line\nsecond: line"), "OptionError: first line"),
        (KeyError("ValueError: of another"), "KeyError: .*ValueError: of another.*"),
        (FileNotFoundError(2, "No such file", "a.png"), "FileNotFoundError: .*No such file: 'a.png'"),
    ],
)
def test_the_others_are_told_what_a_worker_raised(world, error, told, by_worker):
    with pytest.raises(type(error)) as raised:
        fail(error, by_worker=by_worker)
    world.failed(raised.value)
    assert re.search(rf"raised {told} \(at .*test_waiting\.py:\d+\)\.$", str(world.error)), world.error
    world.error = None


def test_numbers_of_the_host_are_read_at_once(world):
    assert world.numbers_of(torch.ones(2), "an update of 'net'") == [1.0, 1.0]


@pytest.mark.parametrize(("failed", "waits"), [(1, False), (2, True), (None, True)])
def test_rank_0_waits_at_its_end_for_all_that_may_read_why_and_not_for_the_one_that_hangs(
    world, monkeypatch, failed, waits
):
    """The others stop at most five seconds behind the time-out, and rank 0 with them; here rank 1 never ends."""
    world.notes.processes = [
        *world.notes.processes,
        RankProcess.of_this_process(),
        RankProcess("here", 7, 0.0),
    ]
    monkeypatch.setattr(RankProcess, "trouble", property(lambda each: "is gone" if each.pid == 7 else None))
    monkeypatch.setattr(worlds, "PARTING_SECONDS", 0.2)
    waited = []
    monkeypatch.setattr(worlds.time, "sleep", waited.append)
    monkeypatch.setattr(worlds.os, "_exit", lambda status: waited.append("gone"))
    world.error = RankError("a rank does not come")
    world.error.rank = failed
    world.exit()
    assert waited.pop() == "gone"
    assert bool(waited) == waits
    world.error = None


ASKS_AT_THE_END = """
import sys, time
from datetime import timedelta

import torch.distributed as dist

from truestep.engine.processes import store_requests as asking
from truestep.engine.processes.world import RankInWorld, World, WorldLinks

store = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=timedelta(seconds=1))
world = World(RankInWorld(0, 1, 0), WorldLinks(None, None, store, lambda: None), timeout_seconds=600)


def ask():
    try:
        store.get("what nobody writes")
    except dist.DistStoreError:
        print("no answer")


class Slow:
    def __del__(self):
        time.sleep(2)


sys.modules["kept to the end"] = Slow()
asking.start_store_thread(ask, "truestep-store")
time.sleep(0.1)
"""


def test_a_question_that_is_answered_at_the_end_of_the_process_does_not_abort_it():
    done = subprocess.run(
        [sys.executable, "-c", ASKS_AT_THE_END], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "no answer\n"), done.stderr
