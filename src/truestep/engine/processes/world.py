# SPDX-License-Identifier: Apache-2.0
"""All processes of a run: what they exchange, and how one that fails stops the others.

Two kinds of messages travel. Small numbers on the host (how many rows, what is wanted next) go through *meetings*: every rank says
what it came for, so ranks that are at different places are told apart by name instead of hanging. Tensors go through collectives,
between two meetings, where all ranks are known to be at the same place.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property, partial
from traceback import walk_tb
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from truestep.core.device_specific import make_completion_query
from truestep.core.errors import RankError
from truestep.core.loop_exit_exception import exit_status
from truestep.core.text_formatting import error_line
from truestep.core.user_frames import line_of_user_code
from truestep.engine.processes.batch_row_shares import RankShare
from truestep.engine.processes.flat_tensors import PIECE_BYTES, FlatPiece, divide_into_pieces
from truestep.engine.processes.loop_end_cause import LeftLoop
from truestep.engine.processes.meeting import WorldMeeting
from truestep.engine.processes.rank_liveness import (
    CALL_OF_ALL,
    RankLookout,
    describe_rank_place,
    distributed_call_name,
    rank_heartbeat,
    ranks_apart_message,
)
from truestep.engine.processes.store_notes import RankNotes
from truestep.engine.processes.store_requests import ask_rank_store, end_store_threads

T = TypeVar("T")


_NO_ROWS = (
    "no row of a batch of {num}, which is divided over {ranks} ranks: there is no batch[0] to look at, and its loss handed nothing "
    "out (update.outputs). Write if len(batch): around what looks at single rows in the loop, or give run.data a batch_size of at "
    "least {ranks}, which ts.gather(update.outputs[...]) needs"
)
POLL = timedelta(milliseconds=500)
PARTING_SECONDS = 5.0  # at most, for ranks that are on their way out
Group = Any
Work = Any


class RankInWorld(NamedTuple):
    """Which of the run's processes this is."""

    rank: int
    size: int
    local_rank: int


class WorldLinks(NamedTuple):
    """What connects the processes: a group for small numbers on the host, one for tensors, and the store.

    Attributes:
        close: takes down the groups that are there.
        stand: whether they are: the user's code may have taken them down.
    """

    control: Group
    data: Group
    store: Any
    close: Callable[[], None]
    stand: Callable[[], bool] = lambda: True


class World:
    """The processes of a run as one of them sees them; `timeout_seconds` is how long a rank may keep the others waiting."""

    here: "ClassVar[World | None]" = None
    """That of the training which this process is in: `ts.gather` asks for it by no name, and a second run finds it."""

    def __init__(self, place: RankInWorld, links: WorldLinks, *, timeout_seconds: float) -> None:
        self.rank, self.size, self.local_rank = place
        self.links = links
        self.share = RankShare(self.rank, self.size)
        self.notes = RankNotes(links.store, self.rank, self.size)
        self.error: RankError | None = None
        """Why the ranks can't go on together; whatever needs them raises it again."""
        self.timeout_seconds = timeout_seconds
        self.step = 0
        """The training's: ranks that come for the same thing at two steps are told apart, too."""
        self.num_given_here: int | None = None
        self.num_given: int | None = None
        """How many examples the batch has, on all ranks, that the loop was given last; None where nothing says so."""
        self.shares_given: tuple[int, ...] | None = None
        """How many of them each rank has, where that is not the order's share."""
        self.num_gathered = 0
        """How often something in a loss has exchanged tensors: its backward does, too."""
        self.counts_nothing = False
        """Whether the loss is being called with an example that counts nothing."""
        self.carrying: Group | None = None
        """The group in which ranks send rank 0 their parts of a checkpoint, where it alone sees the disk."""
        self.dividing: Group | None = None
        """The group by which torch gathers divided weights: of all runs, since each group keeps sockets open."""
        self.num_begun = 0
        """How many messages of the run's own this rank has begun."""
        self.left_loop = LeftLoop(lambda: self.num_begun)
        self._is_mute = False  # the store does not answer
        self._is_closed = False
        self._open: WorldMeeting | None = None
        atexit.register(self._close_at_exit)

    # ------------------------------------------------------------------ small numbers

    def meet(self, what: str, *numbers: float) -> list[list[float]]:
        """Meet the other ranks, which come for the same `what` with as many numbers, and return everybody's."""
        return self._begin_meeting(what, numbers, what).wait()

    def later(self, what: str, *numbers: float, called: str = "") -> WorldMeeting:
        """Begin a meeting that is waited for when its numbers are needed, and before anything else travels.

        `called`: what it is to those who wait elsewhere, for the same without a meeting.
        """
        self._open = self._begin_meeting(what, numbers, called or what)
        return self._open

    def _begin_meeting(self, what: str, numbers: Sequence[float], called: str) -> WorldMeeting:
        def gather(everybody: list[Tensor], mine: Tensor) -> Callable[[], None]:
            work = self._begin_gather(everybody, mine)
            return lambda: self.wait(work, called)

        purpose, apart = f"{self.step} {what}", partial(self.apart, what)
        return WorldMeeting(purpose, numbers, self.size, gather=gather, apart=apart)

    def _begin_gather(self, everybody: list[Tensor], mine: Tensor) -> Work:
        return self.begin(lambda: dist.all_gather(everybody, mine, group=self.links.control, async_op=True))

    # ------------------------------------------------------------------ tensors

    @cached_property
    def sums_on_host(self) -> bool:
        """Whether tensors travel by gloo, in a group apart from that of the meetings."""
        return self.links.data is not self.links.control and self._tensors_are_on_host

    @cached_property
    def _tensors_are_on_host(self) -> bool:
        return self.links.data is self.links.control or bool(dist.get_backend(self.links.data) == "gloo")

    def reduce(self, tensor: Tensor) -> Work:
        """Begin to sum a tensor over all ranks, in place."""
        return self.begin(lambda: dist.all_reduce(tensor, group=self.links.data, async_op=True))

    def wait_all(self, works: Sequence[Work], what: str) -> None:
        """Wait for collectives on tensors; those of an accelerator are only put in its order (`numbers_of` waits there)."""
        for work in works:
            if self._tensors_are_on_host:
                self.wait(work, what)
            else:
                work.wait()

    def broadcast(self, tensors: Sequence[Tensor], what: str, *, source: int = 0, takes: bool = True) -> None:
        """Copy the tensors of rank `source` into those of every rank that `takes` them; they travel flat, in a few pieces."""
        waiting: list[tuple[FlatPiece, Work]] = []
        with torch.no_grad():
            for together in divide_into_pieces(tensors):
                piece = FlatPiece(together)
                if self.rank == source:
                    piece.fill()
                everywhere = partial(dist.broadcast, group_src=source, group=self.links.data, async_op=True)
                waiting.append((piece, self.begin(partial(everywhere, piece.sent))))
                if len(waiting) > 1:  # one travels while the next is put together
                    self._wait_and_unpack(*waiting.pop(0), what, takes=takes and self.rank != source)
            for piece, work in waiting:
                self._wait_and_unpack(piece, work, what, takes=takes and self.rank != source)

    def _wait_and_unpack(self, piece: FlatPiece, work: Work, what: str, *, takes: bool) -> None:
        self.wait_all([work], what)
        if takes:
            piece.write_back()

    def share_bytes(self, mine: bytes, what: str) -> list[bytes]:
        """Return what every rank gave."""
        sizes = [int(size) for (size,) in self.meet(what, len(mine))]
        padded = torch.zeros(max(*sizes, 1), dtype=torch.uint8)
        padded[: len(mine)] = torch.frombuffer(bytearray(mine or b"\0"), dtype=torch.uint8)[: len(mine)]
        everybody = [torch.empty_like(padded) for _ in range(self.size)]
        self.wait(self._begin_gather(everybody, padded), what)
        return [each[:size].numpy().tobytes() for each, size in zip(everybody, sizes, strict=True)]

    def gather_bytes_to_rank_0(self, mine: bytes, what: str) -> list[bytes]:
        """Return on rank 0 what every rank gave, on the others nothing; it travels in pieces, so that no more memory is needed."""
        sizes = [int(size) for (size,) in self.meet(what, len(mine))]
        most, step = max(sizes), max(PIECE_BYTES // self.size, 1)
        found = [bytearray() for _ in sizes]
        for begin in range(0, most, step):
            piece = torch.zeros(min(step, most - begin), dtype=torch.uint8)
            if part := mine[begin : begin + step]:
                piece[: len(part)] = torch.frombuffer(bytearray(part), dtype=torch.uint8)
            for whole, size, each in zip(
                found, sizes, self._gather_piece_to_rank_0(piece, what), strict=False
            ):
                whole += each[: max(0, size - begin)].numpy().data
        return [bytes(each) for each in found] if self.rank == 0 else []

    def _gather_piece_to_rank_0(self, piece: Tensor, what: str) -> list[Tensor]:
        all_pieces = [torch.empty_like(piece) for _ in range(self.size)] if self.rank == 0 else None
        control = self.links.control
        work = self.begin(lambda: dist.gather(piece, all_pieces, group_dst=0, group=control, async_op=True))
        self.wait(work, what)
        return all_pieces or []

    def broadcast_bytes(self, of_rank_0: bytes | None, what: str) -> bytes:
        """Return on every rank what rank 0 gave."""
        size = int(self.meet(what, len(of_rank_0 or b""))[0][0])
        buffer = torch.frombuffer(bytearray(of_rank_0 or bytes(size) or b"\0"), dtype=torch.uint8)
        control = self.links.control
        work = self.begin(lambda: dist.broadcast(buffer, group_src=0, group=control, async_op=True))
        self.wait(work, what)
        return buffer.numpy().tobytes()[:size]

    # ------------------------------------------------------------------ waiting

    def begin(self, start: Callable[[], Work]) -> Work:
        """Begin a collective."""
        if self.error is not None:
            raise self.error
        if self._open is not None:  # only then are all known to be at the same place
            before, self._open = self._open, None
            before.wait()
        self.num_begun += 1
        try:
            return start()
        except RuntimeError as error:
            raise self.broken() from error

    def wait(self, work: Work, what: str) -> None:
        """Wait for a collective on the host; a rank that has failed, or does not come, ends the waiting."""

        def is_done() -> bool:
            try:
                work.wait(POLL)
            except RuntimeError as error:
                if not work.is_completed():
                    return False
                self._raise_unless_just_done(work, error)
            return True

        self._wait_until(is_done, what)

    def numbers_of(self, tensor: Tensor, what: str) -> list[float]:
        """Return the numbers of a tensor that the ranks have computed together.

        A host that reads one of an accelerator waits, until the group's own time-out, for a rank that never comes: so it looks
        around before it reads.
        """
        if (has_come := make_completion_query(tensor)) is not None:
            self._wait_until(lambda: _completes_within(POLL, has_come), what)
        numbers: list[float] = tensor.tolist()
        return numbers

    def _wait_until(self, comes: Callable[[], bool], what: str) -> None:
        """Wait for what `comes` waits for as long as it says no, and look around each time."""
        lookout: RankLookout | None = None
        since = time.monotonic()
        while not comes():
            if (failure := self.ask(self.notes.failure)) is not None:
                raise self._record_rank_error(*failure)
            lookout = lookout or RankLookout(self, what, self.num_begun, since)
            if (found := lookout.look()) is not None:
                self.ask(lambda: self.notes.record_failure(*found))
                raise self._record_rank_error(*found)

    def is_work_done(self, work: Work) -> bool:
        """Whether a collective on the host is done; one that failed is not, and whoever waits for it is told."""
        try:
            return bool(work.is_completed()) and bool(work.wait())
        except RuntimeError:
            return False

    def _raise_unless_just_done(self, work: Work, error: RuntimeError) -> None:
        """Raise unless a collective that is over was done just after the last look."""
        try:
            work.wait()
        except RuntimeError:
            raise self.broken() from error

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """What this rank does now may take its time: the others wait for it as long as it lives."""
        self.ask(lambda: self.notes.busy(what))
        try:
            with rank_heartbeat(lambda count: self.notes.busy(what, count)):
                yield
        finally:
            if self.error is None:
                self.ask(lambda: self.notes.busy(None))

    # ------------------------------------------------------------------ failing

    def failed(self, error: BaseException) -> None:
        """This rank has failed: the others are told, and it does not go on alone."""
        if self.error is not None:
            if _is_connection_error(error):  # broken by what was told already
                error.add_note(f"truestep: {self.error}")
            return
        if isinstance(error, RankError):
            self.error = error
            return
        if isinstance(error, SystemExit):
            self.left_loop.note("", exit_status(error.code))
        place = line_of_user_code(error.__traceback__)
        _note_unmet_call(self, error, place)
        raised = f"raised {error_line(error)}" + (f" (at {place})" if place else "")
        if self.num_given and self.num_given_here == 0 and isinstance(error, Exception):
            why = _NO_ROWS.format(num=self.num_given, ranks=self.size)
            error.add_note(f"truestep: rank {self.rank} has {why}")
            raised += f", where it had {why}"
        text = self.notes.describe(self.rank, raised)
        own = RankError(f"The ranks can't go on together: {text}.")
        self.error = own
        # where the store is gone nobody is left to be told, and what is raised is this rank's own error
        with suppress(RankError):
            self.ask(lambda: self.notes.record_failure(self.rank, text))
        self.error = own

    def ask(self, question: Callable[[], T]) -> T:
        """Ask the store; where it is gone, or does not answer, so is whoever holds it."""
        if self.error is not None and self._is_mute:
            raise self.error
        cause: OSError | RuntimeError
        try:
            return ask_rank_store(question, self.timeout_seconds)
        except TimeoutError as error:
            self._is_mute, cause = True, error
            why = f"it {self.notes.processes[0].trouble or 'hangs, or its machine is out of reach'}"
            what = f"or whoever launched it has not answered for {self.timeout_seconds:g} seconds: {why}"
        except (RuntimeError, OSError) as error:
            cause = error
            what = "is gone, or whoever launched it: the store that the ranks meet in can't be reached"
        raise self._record_rank_error(0, self.notes.describe(0, what)) from cause

    def explained(self, error: BaseException) -> RankError | None:
        """Return who has broken a connection that torch itself was waiting for; None where this is no such error."""
        return self.broken() if _is_connection_error(error) else None

    def broken(self) -> RankError:
        """Return the error for a connection that broke."""
        return self.lost(*self.ask(self.notes.find_culprit))

    def lost(self, rank: int | None, text: str) -> RankError:
        """Return the error for a rank that has failed, and tell the others unless somebody has."""
        if self.ask(self.notes.failure) is None:
            self.ask(lambda: self.notes.record_failure(rank, text))
        return self._record_rank_error(rank, text)

    def _record_rank_error(self, rank: int | None, text: str) -> RankError:
        if rank is None:  # nobody has failed: they are at different places
            self.error = RankError(text)
            return self.error
        self.error = RankError(
            f"This is rank {self.rank}, which stops because another one failed: {text.rstrip('.')}."
        )
        self.error.rank = rank
        return self.error

    def apart(self, what: str) -> RankError:
        """Return the error for ranks that came to one meeting for different things."""
        place = f"{what}, {describe_rank_place(self)}"
        places = self.ask(lambda: self.notes.places(place))
        self.error = RankError(ranks_apart_message(dict(enumerate(places))))
        return self.error

    @property
    def is_open(self) -> bool:
        """Whether the ranks are connected, and nothing has gone wrong."""
        return self.error is None and not self._is_closed

    def close(self) -> None:
        """Take down the connections."""
        self._is_closed = True
        if self.error is None:
            atexit.unregister(self._close_at_exit)
            World.here = None
            self.links.close()

    def _close_at_exit(self) -> None:
        """At the end of the process: threads that wait for a rank which never comes would keep it alive forever."""
        # before a loop begins nothing watches for exceptions, and the others would be told that this rank left without a word
        uncaught: BaseException | None = getattr(sys, "last_value", None)
        if uncaught is not None:
            noted = len(getattr(uncaught, "__notes__", ()))
            self.failed(uncaught)
            for note in getattr(uncaught, "__notes__", [])[noted:]:  # it has been shown already
                sys.stderr.write(f"{note}\n")
        self._is_closed = True
        if self.error is None:
            end_store_threads()
            self.links.close()
            return
        self.exit()

    def exit(self) -> NoReturn:
        """Leave the process at once, past whatever waits in it."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self.rank == 0:
            # the store may be this process's, and the others have yet to read who failed
            until = time.monotonic() + PARTING_SECONDS
            failed = None if self.error is None else self.error.rank  # one that hangs reads nothing
            while self.notes.has_other_running_rank(but=failed) and time.monotonic() < until:
                time.sleep(0.05)
        os._exit(self.left_loop.status)


def _completes_within(limit: timedelta, has_come: Callable[[], bool]) -> bool:
    """Return as soon as an accelerator has come to a place in its order, or the time is up."""
    until, pause = time.monotonic() + limit.total_seconds(), _SHORTEST_PAUSE
    while not (found := has_come()) and time.monotonic() < until:
        time.sleep(pause)  # a waiting host would else keep a core from the loader's workers
        pause = min(2 * pause, _LONGEST_PAUSE)
    return found


_SHORTEST_PAUSE, _LONGEST_PAUSE = 2e-5, 1e-3
_CONNECTION = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting", "gloo", "NCCL")


def _is_connection_error(error: BaseException) -> bool:
    return type(error) is not RankError and any(sign in str(error) for sign in _CONNECTION)


def _note_unmet_call(world: World, error: BaseException, place: str | None) -> None:
    """Note beside what broke in a call of the user's own which one it was, and who did not come."""
    if not _is_connection_error(error):
        return
    call = distributed_call_name(frame for frame, _ in reversed([*walk_tb(error.__traceback__)]))
    if call is None:
        return
    with suppress(RankError):
        _, who = world.ask(world.notes.find_culprit)
        error.add_note(
            f"truestep: rank {world.rank} called torch.distributed ({call}, at {place}), and {who}; or it had come to its end. "
            + CALL_OF_ALL
        )
