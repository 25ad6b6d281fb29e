# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of a run on its disk, as long as it holds them: the lock, the ranks that write beside, the mirror."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truestep.checkpoints.part_writer import CheckpointPartWriter
from truestep.core.errors import CheckpointError, RankError, RunDirectoryError
from truestep.engine.processes.store_notes import PATIENCE_SECONDS
from truestep.engine.processes.store_requests import ask_rank_store
from truestep.engine.processes.world import World
from truestep.report.metrics_rollback import MetricsPrefixMark
from truestep.run.agreement import RankAgreement
from truestep.run.directory import CHECKPOINTS
from truestep.run.loop_end_detection import call_all_then_raise
from truestep.run.parts_via_rank_zero import (
    CheckpointPartReceiver,
    CheckpointPartSender,
    open_part_transfer_group,
)
from truestep.run.signals import StopSignalListener
from truestep.run.state import RunState

if TYPE_CHECKING:
    from truestep.checkpoints import CheckpointStore


class RunStore:
    """Opens the store when it is needed, of several processes in rank 0, and closes it with all that is written for it."""

    def __init__(self, run: RunState, signals: StopSignalListener) -> None:
        self._run, self._signals = run, signals
        self.folder = run.directory / CHECKPOINTS
        self.pieces: ShardedSaving | None = None
        """Where each rank writes what it has of the weights."""
        self._store: CheckpointStore | None = None
        self._left_at: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether this process holds the checkpoints."""
        return self._store is not None

    def open(self) -> None:
        """Hold the directory's lock from now on; of several processes rank 0 does."""
        if self._run.is_main:
            assert self.store

    @property
    def store(self) -> "CheckpointStore":
        """The open store; it holds the run's lock."""
        if self._store is None:
            from truestep.checkpoints import CheckpointStore

            assert self._run.is_main
            self._run.owner.check()
            store = CheckpointStore(
                self.folder, retention=self._run.saving.retention(), background=self._run.saving.background
            )
            # the lock was free in between, and whoever took it may have gone on
            if self._left_at is not None and store.next_sequence > self._left_at:
                store.close()
                raise RunDirectoryError(
                    f"Another process went on with the run in {self._run.directory} after this one had closed it, so what this one "
                    "holds is of the past. Make the run anew, ts.Run(...), to go on from where it stands now."
                )
            store.others = self.pieces.begin if self.pieces else None
            store.pinned = lambda: self._run.mirrored.pinned
            self._store = store
        return self._store

    def divide(self) -> None:
        """Where weights are divided, each rank writes what it has: itself where it sees the directory, else by way of rank 0."""
        context = self._run.context
        if context.world is None or not context.strategy.divides_weights:
            return
        is_shared = all_ranks_see_directory(self._run.agreement, context.world, self.folder)
        self.pieces = ShardedSaving(
            context.world, self.folder, background=self._run.saving.background, is_shared=is_shared
        )
        if self._run.is_main:
            self.store.others = self.pieces.begin
        context.choose("checkpoints", *SAID[is_shared])

    def wait(self) -> None:
        """Wait until what was saved is on disk."""
        if self._run.is_main:
            with self.blame_lost_rank(), self.busy():
                self.store.wait()

    def blame_lost_rank(self) -> AbstractContextManager[None]:
        """Where each rank writes, name the one that a save has lost."""
        return nullcontext() if self.pieces is None else self.pieces.blame_lost_rank()

    def busy(self) -> AbstractContextManager[None]:
        """Have the other processes wait for as long as the disk takes."""
        world = self._run.context.world
        return (
            nullcontext() if world is None or world.error is not None else world.busy("saving a checkpoint")
        )

    def close(self, *, alive: bool = True, ended: str | None = None) -> None:
        """Finish what is being written and let go of the directory.

        `alive`: no exception ended the run; `ended`: how, where the newest checkpoint was saved before that was known.
        """
        if self.pieces is not None:
            self.pieces.close()
        if self._store is not None:
            # forgotten first: whatever fails below, nobody waits for this store again
            store, self._store = self._store, None
            try:
                with self.busy():
                    store.wait()
                if alive:
                    store.forget_attempts(ended)
                    self._run.logbook.forget(lambda: metrics_marks_of_checkpoints(store))
            finally:
                self._left_at = store.next_sequence
                # in this order: what is sent lies under the store's lock
                call_all_then_raise(self._close_mirror, store.close)
        else:
            self._close_mirror()

    def _close_mirror(self) -> None:
        if self._run.mirrored.is_open:
            with self.busy():
                self._run.mirrored.close(self._signals.shutdown_deadline(self._run.saving.grace_seconds))


def metrics_marks_of_checkpoints(store: "CheckpointStore") -> list[MetricsPrefixMark]:
    """Return the marks of all checkpoints that may yet be used, from their manifests: one of them may be damaged."""
    return [MetricsPrefixMark(*checkpoint.value("logbook", "mark")) for checkpoint in store.usable()]


POLL_SECONDS = 0.01
LOOK_SECONDS = 0.2  # at the files and processes of all ranks
SAID = {
    True: ("in pieces", "each rank writes what it has of the weights; they load at any number of ranks"),
    False: (
        "in pieces, by rank 0",
        "not all ranks see the run's directory, so each sends rank 0 what it has; they load at any number of ranks",
    ),
}


def all_ranks_see_directory(agreement: RankAgreement, world: World, folder: Path) -> bool:
    """Return whether every rank sees what rank 0 puts into a folder: one disk for all."""
    name = f".tmp-{uuid.uuid4().hex}"  # of a killed process, it is removed as whatever is half written
    name = agreement.broadcast_json_from_rank_0(
        "the disk of the checkpoints", lambda: _touch_file(folder, name)
    )
    sees = (folder / name).exists()
    seen = all(each for (each,) in world.meet("the disk of the checkpoints", sees))
    if world.rank == 0:
        (folder / name).unlink()
    return seen


def _touch_file(folder: Path, name: str) -> str:
    (folder / name).touch()
    return name


class ShardedSaving:
    """Has every rank write its part into the folder of a checkpoint that rank 0 has made, and rank 0 wait for all of them."""

    def __init__(self, world: World, directory: Path, *, background: bool, is_shared: bool) -> None:
        self._world, self._directory = world, directory
        self.is_shared = is_shared
        """Whether all ranks see the directory; else what they write is sent to rank 0 (`parts_via_rank_zero.py`)."""
        group = None if is_shared else open_part_transfer_group(world)
        self._sender = None if is_shared or not world.rank else CheckpointPartSender(group)
        self._receiver = None if is_shared or world.rank else CheckpointPartReceiver(group, world.size)
        self._writer = CheckpointPartWriter(
            world.rank, tell=self._report_save, background=background, files=self._sender
        )
        self.folder = ""
        """The name of the folder that rank 0 has begun."""
        self._lost: tuple[int, str] | None = None  # who has ended a save by writing nothing more

    def begin(self, folder: Path) -> Callable[[], list[int]]:
        """Note, on rank 0, where the others are to write; return what waits for them."""
        self.folder = folder.name
        return lambda: self._wait_for_other_ranks(folder)

    def write(self, folder: str, state: dict[str, Any]) -> None:
        """Write this rank's part; rank 0's is written by the store."""
        if self._receiver is not None:
            self._receiver.begin(self._directory / folder)
        if self._world.rank:
            self._writer.save(self._directory / folder, {"learners": state["learners"]})

    def close(self) -> None:
        """Finish the part in flight."""
        self._writer.close()

    def _report_save(self, folder: Path, problem: str | None) -> None:
        if self._sender is not None:
            self._sender.end()
        with suppress(RankError):  # the store is gone, and so is whoever would ask
            self._world.ask(lambda: self._world.notes.note_part_written(folder.name, problem))

    def _wait_for_other_ranks(self, folder: Path) -> list[int]:
        """Return the other ranks when all have written; one that can't, is gone or does nothing for too long ends the waiting."""
        others = list(range(1, self._world.size))
        size, since, looked = -1, time.monotonic(), 0.0
        while not (self._has_written_on_ranks(others, folder) and self._has_received_all_parts()):
            if (now := time.monotonic()) - looked > LOOK_SECONDS:
                looked = now
                self._refuse_dead_ranks(others, folder)
                # A rank that writes slowly is waited for as long as something grows.
                found = sum(path.stat().st_size for path in folder.iterdir())
                if found != size:
                    size, since = found, now
            if now - since > self._idle_timeout_seconds:
                late = next(
                    (each for each in others if not self._has_written_on_ranks([each], folder)), others[0]
                )
                raise self._record_lost_rank(
                    folder, late, f"has written nothing for {self._idle_timeout_seconds:g} seconds"
                )
            time.sleep(POLL_SECONDS)
        return others

    def _has_written_on_ranks(self, ranks: list[int], folder: Path) -> bool:
        """Return whether these have; raise where one can't. Two requests, however many ranks there are."""
        notes = self._world.notes
        try:
            problem, is_done = ask_rank_store(
                lambda: (notes.find_failed_part(folder.name), notes.have_parts_written(ranks, folder.name)),
                self._idle_timeout_seconds,
            )
        except (RuntimeError, OSError) as error:
            said = "can't be asked: the store that the ranks meet in is gone, or out of reach"
            raise self._save_failure_error(folder, ranks[0], said) from error
        if problem is not None:
            raise self._save_failure_error(folder, problem[0], f"could not write its part: {problem[1]}")
        return is_done

    def _has_received_all_parts(self) -> bool:
        return self._receiver is None or self._receiver.is_done()

    def _refuse_dead_ranks(self, ranks: list[int], folder: Path) -> None:
        processes = self._world.notes.processes
        gone = [rank for rank in ranks if processes[rank].trouble == "is gone"]
        for rank in gone:
            if not self._has_written_on_ranks([rank], folder):  # asked behind: it may have told, and left
                raise self._record_lost_rank(folder, rank, "is gone: it was killed, or left without a word")

    @property
    def _idle_timeout_seconds(self) -> float:
        """How long nothing may be written; of ranks that have failed nothing more is to be expected."""
        return self._world.timeout_seconds if self._world.error is None else PATIENCE_SECONDS

    @contextmanager
    def blame_lost_rank(self) -> Iterator[None]:
        """Stop all ranks by the name of the one that a save has lost, as any other waiting for it does."""
        try:
            yield
        except CheckpointError as error:
            if self._lost is None:
                raise
            raise self._world.lost(*self._lost) from error

    def _record_lost_rank(self, folder: Path, rank: int, what: str) -> CheckpointError:
        self._lost = rank, self._world.notes.describe(rank, what)
        return self._save_failure_error(folder, rank, what)

    def _save_failure_error(self, folder: Path, rank: int, what: str) -> CheckpointError:
        name = folder.name.removeprefix(".tmp-").rpartition("-")[0]
        text = self._world.notes.describe(rank, what)
        return CheckpointError(
            f"The checkpoint {name} was not saved: {text}. What was saved before is untouched."
        )
