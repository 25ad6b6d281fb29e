# SPDX-License-Identifier: Apache-2.0
"""Looking around while a rank waits: who has not come, who shows no sign of life, and whether what was sent arrives."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from truestep.core.user_frames import line_of_user_code
from truestep.engine.processes.loop_end_cause import ENDED_ITS_LOOP
from truestep.engine.processes.store_notes import RankSignOfLife
from truestep.engine.processes.store_requests import start_store_thread

if TYPE_CHECKING:
    from truestep.engine.processes.world import World

RENEWED_SECONDS = 1.0  # a busy rank's sign of life; one that waits gives one each time it looks around
WITH_STATISTICS = " (batch normalisation takes statistics)"
STILL_SECONDS = 3.0  # without a sign of life, when the time is up already
# what is told of a rank that hangs; a launch knows by it whom it had to end
DID_NOT_COME, SHOWS_NO_LIFE = "did not come to", "has shown no sign of life"
GRACE_SECONDS = 6.0  # for gloo to say itself that a rank's process is gone
# where another rank has said so: it leaves, and rank 0 with the store soon behind it
TOLD_GRACE_SECONDS = 1.5


class _Observation(NamedTuple):
    at: float
    signs: list[RankSignOfLife]


_Cause = tuple[int | None, str]


class RankAbsence:
    """How long a rank's process has been gone, or elsewhere; gloo mostly says so itself, and is given its time to."""

    def __init__(self) -> None:
        self._since: float | None = None

    def confirmed_absence(self, gone: _Cause | None, *, is_told: bool = False) -> _Cause | None:
        """Return the rank that is gone as of this look, and what is to be said of it, once it has been so for long enough."""
        now, grace = time.monotonic(), TOLD_GRACE_SECONDS if is_told else GRACE_SECONDS
        self._since = None if gone is None else self._since or now
        return gone if self._since is not None and now - self._since > grace else None


class RankLookout:
    """One rank's waiting in one meeting; it finds out which rank is the cause when the time-out is over, or the ranks are apart.

    At each look the sign of the next rank is read: where that waits, too, with as many messages begun and at another place, each
    would wait for the other for ever. In a ring of ranks two neighbours are apart if any two are.
    A rank whose process is gone is the cause, once gloo had time to say so. When the time is over, a rank that has not come and
    is not busy is the cause at once. All others are looked at twice: one whose sign of life is the
    same as it was is stopped, or out of reach, though it had come, or was busy. Where all have come, live, and have waited for as
    long as the time-out, what they send each other does not arrive.
    """

    def __init__(self, world: "World", what: str, meeting: int, since: float) -> None:
        self._world, self._what, self._meeting = world, what, meeting
        self._begun = self._since = since
        self._seen: _Observation | None = None
        self._gone = RankAbsence()

    def look(self) -> tuple[int | None, str] | None:
        """Give a sign of life; return the rank that is the cause (None: all together) and what is to be said of it."""
        world, now = self._world, time.monotonic()
        where = describe_rank_place(world)
        world.ask(lambda: world.notes.waits(self._meeting, self._what, now - self._begun, where))
        if self._is_at_other_place(world.ask(lambda: world.notes.waiting((world.rank + 1) % world.size))):
            return None, self._ranks_apart_text()
        # once in some hundred kills gloo says nothing of it
        if (gone := self._gone.confirmed_absence(world.notes.find_gone_rank())) is not None:
            return gone
        if now - self._since <= world.timeout_seconds:
            return None
        signs = world.ask(world.notes.signs)
        absent = [rank for rank, sign in enumerate(signs) if sign.meeting != self._meeting]
        late = next((rank for rank in absent if rank != world.rank and signs[rank].busy is None), None)
        if late is not None:
            return self._late_rank_report(late, signs[late])
        return self._find_cause_after_two_looks(_Observation(now, signs), absent)

    def _is_at_other_place(self, sign: RankSignOfLife) -> bool:
        return sign.meeting == self._meeting and sign.place != self._what

    def _ranks_apart_text(self) -> str:
        signs = self._world.ask(self._world.notes.signs)
        waits = [(rank, sign) for rank, sign in enumerate(signs) if sign.meeting == self._meeting]
        return ranks_apart_message({rank: f"{sign.place}, {sign.where}" for rank, sign in waits})

    def _find_cause_after_two_looks(self, now: _Observation, absent: list[int]) -> tuple[int, str] | None:
        world = self._world
        if self._seen is None:
            self._seen = now
        if now.at - self._seen.at < STILL_SECONDS:
            return None
        before, self._seen = self._seen, now
        for rank, (sign, old) in enumerate(zip(now.signs, before.signs, strict=True)):
            if rank != world.rank and sign == old:
                return self._silent_rank_report(rank, sign)
        if absent:  # busy, and at it: its time begins again
            self._since, self._seen = now.at, None
        elif min(sign.seconds for sign in now.signs) >= world.timeout_seconds:
            return self._network_failure_report()
        return None

    def _late_rank_report(self, rank: int, sign: RankSignOfLife) -> tuple[int, str]:
        ahead = sign.meeting > self._meeting
        waits = f"waits for {sign.place}" if ahead else "is still at work elsewhere"
        return self._rank_report(
            rank,
            f"{DID_NOT_COME} {self._what} within {self._timeout_text}: it {self._trouble(rank) or waits}. Every rank must come to "
            f"the same updates, evaluations and ends of passes; for work that takes longer write {self._longer}",
        )

    def _silent_rank_report(self, rank: int, sign: RankSignOfLife) -> tuple[int, str]:
        did = f"was busy ({sign.busy})" if sign.busy is not None else f"had come to {self._what}"
        why = self._trouble(rank) or "hangs, or its machine is out of reach"
        still = f"{SHOWS_NO_LIFE} for {STILL_SECONDS:g} seconds"
        return self._rank_report(rank, f"{did}, and {still}: it {why}")

    def _network_failure_report(self) -> tuple[int, str]:
        return self._rank_report(
            self._world.rank,
            f"and all others have come to {self._what}, and what they send each other has not arrived within {self._timeout_text}: "
            f"the network between them is cut, or too slow for it (then write {self._longer})",
        )

    @property
    def _longer(self) -> str:
        return f"ts.Run(directory, timeout_seconds={4 * self._world.timeout_seconds:g})"

    @property
    def _timeout_text(self) -> str:
        return f"{self._world.timeout_seconds:g} seconds"

    def _trouble(self, rank: int) -> str | None:
        return self._world.notes.processes[rank].trouble

    def _rank_report(self, rank: int, what: str) -> tuple[int, str]:
        return rank, self._world.notes.describe(rank, what)


def describe_rank_place(world: "World") -> str:
    """Return the line of the user's code that waits, the step, and what ended this rank's loop just before."""
    return f"{line_of_user_code() or 'at its end'} (step {world.step}){world.left_loop.told()}"


def ranks_apart_message(places: Mapping[int, str]) -> str:
    """Say that the ranks have come to different places: by rank, for what, in which line and at which step."""
    listed = "; ".join(f"rank {rank}: {place}" for rank, place in places.items())
    updating, measuring = (
        [place.startswith(what) for place in places.values()]
        for what in ("an update", "a batch of an evaluation")
    )
    is_uneven = any(any(each) and not all(each) for each in (updating, measuring))
    is_ended = any(ENDED_ITS_LOOP in place for place in places.values())
    uneven = f" {_CAUGHT if is_ended else _UNEVEN}" if is_ended or is_uneven else ""
    statistics = [WITH_STATISTICS in place for place in places.values()]
    modes = f" {_MODES}" if all(updating) and any(statistics) and not all(statistics) else ""
    return (
        f"The ranks came to different places, where each would wait for the others forever. {listed}. Every rank must make "
        "the same updates, evaluations and passes; `if run.is_main:` is for printing and files of your own."
        + uneven
        + modes
    )


_MODES = "Batch normalisation takes statistics of the batch on some ranks alone: call train() or eval() on all alike."
_CAUGHT = (
    "Code outside of a loop that catches what ended it hides that from the others: let it go on, `raise`, or catch it on every "
    "rank."
)
_UNEVEN = "A loop that is longer on one rank than on another ends so, too: give run.data the whole data set, which it divides."


CALL_OF_ALL = "A call of torch.distributed is one that all ranks make: take it out of `if run.is_main:`."
_TORCHS = f"{os.sep}torch{os.sep}distributed{os.sep}"


def distributed_call_name(frames: Iterable[FrameType]) -> str | None:
    """Return the name of what was called of torch.distributed, given the frames from within outward; None where nothing was."""
    codes = (frame.f_code for frame in frames)
    names = [
        code.co_name for code in codes if _TORCHS in code.co_filename and "elastic" not in code.co_filename
    ]
    return next((name for name in reversed(names) if name != "wrapper"), None)  # torch logs calls by one


@contextmanager
def rank_heartbeat(write: Callable[[int], None]) -> Iterator[None]:
    """Have a thread write a number that grows, every second, as long as this process lives."""
    done = threading.Event()

    def write_heartbeats() -> None:
        count = 0
        with suppress(RuntimeError, OSError):  # the store is gone: whoever waits for it says so
            while not done.wait(RENEWED_SECONDS):
                count += 1
                write(count)

    thread = start_store_thread(write_heartbeats, "truestep-busy")
    try:
        yield
    finally:
        done.set()
        thread.join(RENEWED_SECONDS)  # it may be asking a store that never answers
