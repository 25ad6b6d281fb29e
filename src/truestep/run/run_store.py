# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of a run on its disk, as long as it holds them: the lock, the ranks that write beside, the mirror."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from truestep.core.errors import RunDirectoryError
from truestep.report.history import MetricsMark
from truestep.run.directory import CHECKPOINTS
from truestep.run.endings import end_all
from truestep.run.pieces import SAID, SavesInPieces, all_ranks_see_directory
from truestep.run.signals import StopSignals
from truestep.run.state import RunState

if TYPE_CHECKING:
    from truestep.checkpoints import CheckpointStore


class RunStore:
    """Opens the store when it is needed, of several processes in rank 0, and closes it with all that is written for it."""

    def __init__(self, run: RunState, signals: StopSignals) -> None:
        self._run, self._signals = run, signals
        self.folder = run.directory / CHECKPOINTS
        self.pieces: SavesInPieces | None = None
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
                self.folder,
                retention=self._run.saving.retention(),
                background=self._run.saving.background,
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
        """Where weights are divided, find out whether all ranks write what they have; else rank 0 gathers and writes all."""
        context = self._run.context
        if context.world is None or not context.strategy.divides_weights:
            return
        if all_ranks_see_directory(self._run.agreement, context.world, self.folder):
            self.pieces = SavesInPieces(context.world, self.folder, background=self._run.saving.background)
        if self._run.is_main:
            self.store.others = self.pieces.begin if self.pieces else None
        context.choose("checkpoints", *SAID[self.pieces is not None])

    def wait(self) -> None:
        """Wait until what was saved is on disk."""
        if self._run.is_main:
            with self.blaming(), self.busy():
                self.store.wait()

    def blaming(self) -> AbstractContextManager[None]:
        """Where each rank writes, name the one that a save has lost."""
        return nullcontext() if self.pieces is None else self.pieces.blaming()

    def busy(self) -> AbstractContextManager[None]:
        """Have the other processes wait for as long as the disk takes."""
        world = self._run.context.world
        return nullcontext() if world is None else world.busy("saving a checkpoint")

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
                store.wait()
                if alive:
                    store.forget_attempts(ended)
                    self._run.logbook.forget(lambda: marks_in(store))
            finally:
                self._left_at = store.next_sequence
                end_all(
                    self._close_mirror, store.close
                )  # in this order: what is sent lies under the store's lock
        else:
            self._close_mirror()

    def _close_mirror(self) -> None:
        if self._run.mirrored.is_open:
            with self.busy():
                self._run.mirrored.close(self._signals.ends_at(self._run.saving.grace_seconds))


def marks_in(store: "CheckpointStore") -> list[MetricsMark]:
    """Return the marks of all checkpoints that may yet be used, from their manifests: one of them may be damaged."""
    return [MetricsMark(*checkpoint.value("logbook", "mark")) for checkpoint in store.usable()]
