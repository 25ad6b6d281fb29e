# SPDX-License-Identifier: Apache-2.0
"""Who is at fault when a rank has waited for as long as it may."""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from truestep.engine.processes import rank_liveness, store_notes
from truestep.engine.processes.compile_waiting import announce_compiles
from truestep.engine.processes.loop_end_cause import LeftLoop
from truestep.engine.processes.store_notes import RankNotes

TIMEOUT, MEETING = 20.0, 7


@pytest.fixture
def ranks(monkeypatch):
    """Three ranks' notes in one store, and a clock of our own that stands still."""
    store, found = dist.HashStore(), [None] * 3
    monkeypatch.setattr(store_notes.RankProcess, "trouble", None)

    def meet(rank):
        found[rank] = RankNotes(store, rank, 3)

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock = [0.0]
    monkeypatch.setattr(rank_liveness, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return SimpleNamespace(notes=found, clock=clock)


def watch(ranks, size=3):
    """Return rank 0's lookout."""
    world = SimpleNamespace(
        rank=0,
        size=size,
        step=4,
        left_loop=LeftLoop(lambda: 0),
        timeout_seconds=TIMEOUT,
        notes=ranks.notes[0],
        ask=lambda question: question(),
    )
    return rank_liveness.RankLookout(world, "an update of 'net'", MEETING, ranks.clock[0])


def looks(ranks, seconds, live):
    """Look around every half second; return when who was at fault, None where nobody was."""
    found = watch(ranks)
    while ranks.clock[0] < seconds:
        ranks.clock[0] += 0.5
        live(ranks.clock[0])
        if (fault := found.look()) is not None:
            return ranks.clock[0], *fault
    return None


def waits(ranks, *which, since=0.0, meeting=MEETING):
    """Return what has these ranks wait in a meeting, and give a sign of life each time."""

    def live(now):
        for rank in which:
            ranks.notes[rank].waits(meeting, "an update of 'net'", max(now - since, 0.0))

    return live


def test_who_has_not_come_is_named_when_the_time_is_up(ranks):
    at, rank, text = looks(ranks, 100, waits(ranks, 1))
    assert (at, rank) == (TIMEOUT + 0.5, 2)
    assert "did not come to an update of 'net' within 20 seconds: it is still at work elsewhere" in text
    ranks.clock[0] = 0.0
    ranks.notes[2].waits(MEETING + 1, "run.log", 1.0)
    assert "it waits for run.log" in looks(ranks, 100, waits(ranks, 1))[2]


def test_who_had_come_and_shows_no_sign_of_life_is_named_within_five_seconds(ranks):
    ranks.notes[2].waits(MEETING, "an update of 'net'", 1.0)  # and then its cable is cut
    at, rank, text = looks(ranks, 100, waits(ranks, 1))
    assert rank == 2
    assert at <= TIMEOUT + 5
    assert "had come to an update of 'net', and has shown no sign of life for 3 seconds" in text
    assert "out of reach" in text


def test_what_does_not_arrive_though_all_have_come_ends_the_waiting_too(ranks):
    at, rank, text = looks(ranks, 100, waits(ranks, 1, 2))
    assert rank == 0
    assert TIMEOUT < at <= TIMEOUT + 5
    assert "what they send each other has not arrived within 20 seconds" in text


def test_ranks_that_wait_for_different_things_are_named_at_the_first_look(ranks):
    def live(now):
        ranks.notes[1].waits(MEETING, "an evaluation with 'net'", now, "train.py:31 (step 4)")
        ranks.notes[2].waits(MEETING - 1, "an update of 'net'", now, "train.py:25 (step 4)")

    at, rank, text = looks(ranks, 100, live)
    assert (at, rank) == (0.5, None)
    assert "rank 0: an update of 'net', " in text
    assert "rank 1: an evaluation with 'net', train.py:31 (step 4)." in text
    assert "rank 2" not in text  # it is on its way


def test_who_came_late_is_given_the_whole_time(ranks):
    early, late = waits(ranks, 1), waits(ranks, 2, since=19.0)

    def live(now):
        early(now)
        if now > 19:
            late(now)

    at, _, text = looks(ranks, 100, live)
    assert 19 + TIMEOUT < at <= 19 + TIMEOUT + 5
    assert "has not arrived" in text


def test_a_busy_rank_is_waited_for_as_long_as_it_lives(ranks):
    dies = 200.0

    def live(now):
        waits(ranks, 1)(now)
        if now < dies:
            ranks.notes[2].busy("saving a checkpoint", int(now))

    at, rank, text = looks(ranks, 300, live)
    assert rank == 2
    assert dies < at <= dies + TIMEOUT + 5
    assert "was busy (saving a checkpoint), and has shown no sign of life" in text


def test_a_busy_rank_renews_its_word_until_it_is_done(monkeypatch):
    monkeypatch.setattr(rank_liveness, "RENEWED_SECONDS", 0.001)
    written, enough = [], threading.Event()

    def write(count):
        written.append(count)
        if count > 2:
            enough.set()

    with rank_liveness.rank_heartbeat(write):
        assert enough.wait(30)
    left = [thread for thread in threading.enumerate() if thread.name == "truestep-busy"]
    for thread in left:  # it is waited for as long as between two words, here a millisecond
        thread.join(30)
    assert not any(thread.is_alive() for thread in left)
    assert written == list(range(1, len(written) + 1))


class BusyWorld:
    """Notes what it is busy with."""

    is_open = True

    def __init__(self):
        self.seen = []

    @contextmanager
    def busy(self, what):
        self.seen.append(f"{what} begins")
        yield
        self.seen.append(f"{what} ends")


def test_a_rank_that_compiles_is_busy_with_it():
    world, other = BusyWorld(), BusyWorld()
    announce_compiles(world)
    announce_compiles(world)  # of a second learner
    compiled = torch.compile(lambda rows: rows + 1, backend="eager")
    compiled(torch.ones(2))
    assert world.seen == ["compiling begins", "compiling ends"]
    compiled(torch.ones(2))
    assert len(world.seen) == 2
    world.is_open = False
    torch.compile(lambda rows: rows + 2, backend="eager")(torch.ones(2))
    assert len(world.seen) == 2
    assert other.seen == []


class CountedStore:
    """A store whose requests are counted."""

    def __init__(self):
        self._store, self.num_requests = dist.HashStore(), 0

    def __getattr__(self, name):
        self.num_requests += name != "has_extended_api"
        return getattr(self._store, name)


def among(monkeypatch, size):
    """Return the first of so many ranks' lookouts, its clock, and its store."""
    store, clock = CountedStore(), [0.0]
    monkeypatch.setattr(RankNotes, "_read_notes_of_all", lambda *_: [])  # nobody waits for the others here
    everybody = [RankNotes(store, rank, size) for rank in range(size)]
    monkeypatch.undo()
    everybody[0].processes = [store_notes.RankProcess("elsewhere", rank, 0.0) for rank in range(size)]
    monkeypatch.setattr(rank_liveness, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return watch(SimpleNamespace(notes=everybody, clock=clock), size), clock, store, everybody


@pytest.mark.parametrize("looks_at", [1.0, TIMEOUT + 1, TIMEOUT + 5])
def test_a_look_asks_the_store_as_often_among_many_as_among_few(monkeypatch, looks_at):
    asked = set()
    for size in (3, 64):
        found, clock, store, everybody = among(monkeypatch, size)
        for rank, each in enumerate(everybody):
            each.busy("compiling", rank)
        clock[0], store.num_requests = looks_at, 0
        found.look()
        asked.add(store.num_requests)
    assert len(asked) == 1
    assert asked.pop() <= 4


@pytest.mark.parametrize("size", [3, 64])
def test_rank_0_asks_for_the_parts_of_a_checkpoint_as_often_among_many_as_among_few(monkeypatch, size):
    _, _, store, everybody = among(monkeypatch, size)
    others = list(range(1, size))
    for rank in others[:-1]:
        everybody[rank].note_part_written("step-4", None)
    store.num_requests = 0
    assert everybody[0].find_failed_part("step-4") is None
    assert not everybody[0].have_parts_written(others, "step-4")
    assert store.num_requests == 2
    everybody[-1].note_part_written("step-4", None)
    assert everybody[0].have_parts_written(others, "step-4")
    everybody[1].note_part_written("step-5", "no space is left")
    assert everybody[0].find_failed_part("step-5") == (1, "no space is left")
