# SPDX-License-Identifier: Apache-2.0
"""Streams that hold something of this process while their state is tried in another: nothing is lost or waits for long."""

import os
import queue
import random
import socket
import threading
import time

import pytest
import torch
from support.streams import Buffered
from torch.utils.data import IterableDataset

from truestep.core.os_specific import open_connections, redirect_all_to_devnull
from truestep.engine.data import DataOptions, open_source, stream_state_check, worker_timeouts
from truestep.engine.data.worker_timeouts import WorkerPatience, WorkerWaitError

SIZE = 60


class Holding(IterableDataset):
    """Numbers in their order, with a state that is all of it."""

    at = starts_at = 0

    def __iter__(self):
        self.at, self.starts_at = self.starts_at, 0
        with self.held():
            while self.at < SIZE:
                self.at += 1
                yield self.asked(self.at - 1)

    def asked(self, number):
        return number

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.starts_at = state["at"]

    def close(self):
        pass


class OfLock(Holding):
    def __init__(self, kind):
        self.lock = kind()

    def held(self):
        return self.lock


class OfThread(Holding):
    """Asks a thread for each sample."""

    def __init__(self):
        self.wanted, self.given = queue.Queue(), queue.Queue(maxsize=2)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        for number in iter(self.wanted.get, None):
            self.given.put(number)

    def held(self):
        return threading.Lock()

    def asked(self, number):
        self.wanted.put(number)
        return self.given.get()

    def close(self):
        self.wanted.put(None)
        self.thread.join()


class OfConnection(OfThread):
    """Asks a server for each sample, over one connection."""

    def __init__(self):
        self.near, self.far = socket.socketpair()
        super().__init__()

    def serve(self):
        while asked := self.far.recv(1):
            self.far.sendall(asked)

    def asked(self, number):
        self.near.sendall(bytes([number]))
        answer = self.near.recv(1)
        if not answer:
            raise ConnectionResetError("the server has gone")
        return answer[0]

    def close(self):
        self.near.close()
        self.thread.join()
        self.far.close()


class OfFeed(OfConnection):
    """Is sent the samples one after another, without asking: what is read in another process is missing here."""

    def serve(self):
        self.far.sendall(bytes(range(SIZE)))

    def asked(self, number):
        return int.from_bytes(self.near.recv(1))


class OfPolledThread(OfThread):
    """Looks every few milliseconds whether its thread has an answer."""

    def asked(self, number):
        self.wanted.put(number)
        while self.given.empty():
            time.sleep(0.005)
        return self.given.get()


HABITS = {
    "a lock": lambda: OfLock(threading.Lock),
    "a semaphore": lambda: OfLock(threading.Semaphore),
    "a queue": OfThread,
    "a queue that is looked at": OfPolledThread,
    "a connection": OfConnection,
    "a feed": OfFeed,
}


def opened(data, **options):
    return open_source(data, DataOptions(batch_size=4, **options), seed=0)


def test_a_connection_that_was_closed_meanwhile_stands_for_no_other(tmp_path):
    near, far = os.pipe()
    listed = {number: which for number, which in open_connections().items() if number in (near, far)}
    os.close(near)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)  # the smallest number that is free
    redirect_all_to_devnull(listed)
    os.write(other, b"x")
    os.write(far, b"nobody reads it")
    os.close(other)
    os.close(far)
    assert (tmp_path / "other").read_bytes() == b"x"


@pytest.mark.sliced(3)
@pytest.mark.filterwarnings("ignore:this stream")
@pytest.mark.parametrize("habit", HABITS)
def test_what_a_stream_holds_is_left_alone_and_its_trial_ends_soon(habit, monkeypatch):
    data = HABITS[habit]()
    if not isinstance(data, OfConnection):  # that is an error at once
        monkeypatch.setattr(stream_state_check, "QUIET", 0.3)
    source = opened(data)
    reading = source.batches(0)
    found = [next(reading) for _ in range(9)]
    state, promise = source.state_dict(), source.choices[-1]
    found += reading
    assert torch.cat(found).tolist() == [*range(SIZE)]
    assert state["workers"] == [None]
    assert "reads its pass again from the front" in promise.reason
    why = (
        "could not be tried ("
        if isinstance(data, OfConnection)
        else "was not tried (a process of its own read nothing for"
    )
    assert f"its own state {why}" in promise.reason
    data.close()
    data = HABITS[habit]()
    again = opened(data)
    again.load_state_dict(state)
    assert again.how_it_resumes(0, 9).endswith(promise.reason.partition(": ")[2])
    assert torch.cat([*again.batches(0, 9)]).tolist() == [*range(36, SIZE)]
    data.close()


def test_the_run_is_told_once_that_a_trial_was_ended(monkeypatch):
    monkeypatch.setattr(stream_state_check, "QUIET", 0.3)
    source = opened(OfLock(threading.Lock))
    with pytest.warns(
        UserWarning, match=r"counts as one without a state.*let go of locks before each yield"
    ) as told:
        assert len([*source.batches(0), *source.batches(1)]) == 2 * SIZE // 4
    assert len(told) == 1


class Stateless(Buffered):
    def __init__(self, state):
        super().__init__(96, 3)
        self.state = state

    def state_dict(self):
        if isinstance(self.state, Exception):
            raise self.state
        return {"kept": self.state}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("state", "why"),
    [
        (
            NotImplementedError("not of this kind\nof iterable"),
            "taken (NotImplementedError: not of this kind)",
        ),
        (AttributeError(), "taken (AttributeError)"),
        (threading.Lock(), "copied (TypeError: cannot pickle '_thread.lock' object)"),
    ],
)
def test_a_state_that_can_not_be_had_leaves_its_reason(state, why, num_workers):
    source = opened(Stateless(state), num_workers=num_workers)
    told = []
    source.tell_choices(told.append)
    reading = source.batches(1)
    given = [next(reading) for _ in range(12)]
    place, rest = source.state_dict(), [*reading]
    source.close()
    assert sorted(torch.cat(given + rest).tolist()) == [*range(96)]
    assert told[-1] == source.choices[-1]
    assert source.choices[-1].reason.endswith(f": its own state can't be {why}")
    again = opened(Stateless(state), num_workers=num_workers)
    again.load_state_dict(place)
    assert again.how_it_resumes(1, 12).endswith(f"its own state can't be {why}")
    again.close()


@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        ([(0, 0, 0.0), (4, 0, 0.0), (6, 0, 0.0)], "read nothing for 5 s"),
        ([(0, 0, 0.0), (4, 1, 0.0), (8, 2, 0.0), (12, 3, 0.0)], None),  # reads on
        ([(0, 0, 0.0), (6, 0, 2.0), (12, 0, 4.0)], None),  # computes
        ([(0, 0, 0.0), (6, 0, 2.0), (12, 0, 2.1)], "read nothing for 5 s"),
        ([(0, 0, 0.0), (3, 0, 0.1), (6, 0, 0.2)], "read nothing for 5 s"),  # looks now and then
        ([*((at, at, at) for at in range(0, 22, 3))], "not through with that after 20 s"),
    ],
)  # fmt: skip
def test_workers_are_waited_for_as_long_as_they_get_on(seen, ends, monkeypatch):
    clock, used = iter([0.0, *(at for at, _, _ in seen)]), iter(used for _, _, used in seen)
    monkeypatch.setattr(worker_timeouts.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(worker_timeouts, "_process_cpu_seconds", lambda process: next(used))
    waiting = WorkerPatience(5.0, 20.0)
    for _, place, _ in seen[:-1]:
        waiting.check([place], [1])
    if ends is None:
        waiting.check([seen[-1][1]], [1])
        return
    with pytest.raises(WorkerWaitError, match=ends):
        waiting.check([seen[-1][1]], [1])


@pytest.mark.parametrize(
    ("options", "is_by_clock"),
    [({}, True), ({"seed": None}, True), ({"seed": 3}, False), ({"rng": random.Random(3)}, False)],
)
def test_a_shuffle_by_the_clock_of_webdataset_is_said_when_it_is_opened(options, is_by_clock):
    wds = pytest.importorskip("webdataset")

    def samples():
        yield from ({"id": number} for number in range(SIZE))

    pipeline = wds.DataPipeline(samples, wds.shuffle(5, **options), wds.map(lambda sample: sample["id"]))
    promise = opened(pipeline).choices[-1]
    assert promise.weakens == is_by_clock
    assert (promise.value == "can't be resumed") == is_by_clock
    if is_by_clock:
        assert "    def web(epoch):\n" in promise.reason
        assert "rng=random.Random(epoch)" in promise.reason
    again = wds.DataPipeline(wds.ResampledShards(["0.tar"]), wds.map(str))
    assert opened(again).choices[-1].weakens
    whole = opened(wds.DataPipeline(samples, wds.map(lambda sample: sample["id"])))
    assert not whole.choices[-1].weakens
