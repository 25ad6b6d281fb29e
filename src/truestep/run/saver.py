# SPDX-License-Identifier: Apache-2.0
"""When a run is saved, and what it goes on from."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from truestep.core.errors import CheckpointError, NonFiniteError, RunDirectoryError, TruestepError
from truestep.doctor.runtime.operations import without_watched_operations
from truestep.engine.memory import release_spent_gradients
from truestep.engine.state import load_learner_state
from truestep.report.history import NOTHING, MetricsMark
from truestep.run import snapshot
from truestep.run.agreement import LoopWishes
from truestep.run.announcements import RunBeginning
from truestep.run.bodies import LoopBodies
from truestep.run.directory import CHECKPOINTS
from truestep.run.endings import end_all
from truestep.run.kept_settings import with_secrets_of_code
from truestep.run.pieces import SAID, SavesInPieces, all_ranks_see_directory
from truestep.run.reading import Choose, Found, Read, SharedResumeReading, read_resumed_alone
from truestep.run.signals import StopSignals
from truestep.run.state import RunState
from truestep.run.tracking import tracked_sizes
from truestep.run.user_state import run_state_at_a_glance, run_state_digest

if TYPE_CHECKING:
    from truestep.checkpoints import Checkpoint, CheckpointStore


class RunSaver:
    """Saves a run between two batches, by steps, by time, at an epoch's end, and at the best value of a metric."""

    def __init__(self, run: RunState, signals: StopSignals) -> None:
        self._run, self._signals = run, signals
        self._options = run.saving
        self._store: CheckpointStore | None = None
        self._pieces: SavesInPieces | None = None  # where each rank writes what it has of the weights
        # a run that has just begun is not due by time
        self._saved_at = time.monotonic()
        self._saved_place: tuple[Any, ...] | None = None
        self._went_on_from: str | None = None
        self._saved_digest: str | None = None  # of what is tracked, where the run may have ended
        self._way_back: int | None = None  # the newest save from which a body finds every pass that it has
        self._best_found = False
        self._due: str | None = None  # why the run is to be saved as soon as it can be gone on from
        self._metrics: dict[str, float] = {}  # logged for the weights as they are
        self._logged: set[str] = set()
        self._left_at: int | None = None
        self._attempts = 0  # updates of all learners, up to the last moment between two batches
        self.bodies = LoopBodies(run)

    @property
    def store(self) -> "CheckpointStore":
        """The open store; it holds the run's lock."""
        if self._store is None:
            from truestep.checkpoints import CheckpointStore

            assert self._run.is_main
            self._run.owner.check()
            store = CheckpointStore(
                self._run.directory / CHECKPOINTS,
                retention=self._options.retention(),
                background=self._options.background,
            )
            if self._left_at is not None and store.next_sequence > self._left_at:
                store.close()
                raise RunDirectoryError(
                    f"Another process went on with the run in {self._run.directory} after this one had closed it, so what this one "
                    "holds is of the past. Make the run anew, ts.Run(...), to go on from where it stands now."
                )
            store.others = self._pieces.begin if self._pieces else None
            store.pinned = lambda: self._run.mirrored.pinned
            self._store = store
        return self._store

    def divide(self) -> None:
        """Where weights are divided, find out whether all ranks write what they have; else rank 0 gathers and writes all."""
        context = self._run.context
        if context.world is None or not context.strategy.divides_weights:
            return
        folder = self._run.directory / CHECKPOINTS
        if all_ranks_see_directory(self._run.agreement, context.world, folder):
            self._pieces = SavesInPieces(context.world, folder, background=self._options.background)
        if self._run.is_main:
            self.store.others = self._pieces.begin if self._pieces else None
        context.choose("checkpoints", *SAID[self._pieces is not None])

    def open(self) -> None:
        """Hold the directory's lock from now on; of several processes rank 0 does."""
        if self._run.is_main:
            assert self.store

    def resume(self) -> RunBeginning | None:
        """Bring the run to its newest checkpoint; return what it begins from, None where there is nothing."""
        for learner in self._run.context.learners.values():
            learner.switches.begin()  # more may be frozen since the learner was made
        found = self._read("the checkpoint that it goes on from", self._to_go_on_from)
        self._mark_boundary()
        if found is None and self._run.resume_as == "must":
            raise RunDirectoryError(
                f"{self._run.directory} holds a run that was stopped before its first checkpoint, and resume='must' was asked for. "
                "Use resume='auto' to start it from the beginning."
            )
        if found is None:
            self._run.logbook.go_back(NOTHING)  # lines of a start that came to no checkpoint
            return None
        name, state = found[0], with_secrets_of_code(self._run, found[1])
        try:
            changed = snapshot.edits_of_run(self._run, state)
        except TruestepError:
            if self._run.is_main:
                # It was the code that was refused: no attempt has died of this checkpoint.
                self.store.forget_attempt(name)
            raise
        changed += snapshot.restore_run(self._run, state, _marks_in(self.store) if self._run.is_main else ())
        self._mark_boundary()
        self._saved_place, self._saved_digest = self._place(), run_state_digest(self._run.tracked.state())
        self._went_on_from = name
        if self._run.is_main:
            ways_back = filter(_finds_its_way, self.store.usable())
            self._way_back = next((found.summary.sequence for found in ways_back), None)
        return RunBeginning(
            name, state["environment"], changed, tracked_sizes(snapshot.tracked_in(self._run, state))
        )

    def _read(self, what: str, choose: Choose, *under: str) -> Found:
        """Return the checkpoint that rank 0 chooses, and what it has under a path.

        Where weights are divided and all see the disk, each rank reads what it needs; else rank 0 reads, and gives it to all.
        """
        run, world = self._run, self._run.context.world
        if self._pieces is None or world is None:
            read = partial(read_resumed_alone, choose, lambda c: c.load(*under))
            return run.agreement.tree_from_rank_0(what, read)  # type: ignore[no-any-return]
        part_of = snapshot.run_state_parts(run)
        reading = SharedResumeReading(
            world, run.directory / CHECKPOINTS, what, lambda c: c.load(*under, part_of=part_of)
        )
        return reading.found(choose)

    def _to_go_on_from(self, read: Read) -> "Checkpoint | None":
        found = self.store.resume(read) if self._run.holds_run else None
        self._run.mirrored.attempt_noted()
        return None if found is None else found.checkpoint

    @property
    def is_time(self) -> bool:
        """Whether `every_seconds` have gone since the run was saved."""
        seconds = self._options.every_seconds
        return seconds is not None and time.monotonic() - self._saved_at >= seconds

    @property
    def has_waited(self) -> bool:
        """Whether the last save was long enough ago for one at the end of an epoch."""
        return time.monotonic() - self._saved_at >= self._options.epoch_seconds

    def body_done(self) -> int:
        """The next batch is asked for: note how many updates this body made, and return it."""
        self._run.mirrored.look()
        self._attempts = self._run.attempts
        return self.bodies.end()

    @property
    def may_be_due(self) -> bool:
        """Whether `is_due` could be true without anybody asking: most batches end without."""
        every = self._options.every_steps
        if every is not None and self._run.cursor.done % every == 0:
            return True
        return self._best_found or self._due is not None or bool(self._metrics) or self.is_time

    def is_due(self, asked: LoopWishes) -> bool:
        """Whether something is to be done between two batches, as soon as a run could go on from there."""
        self._due = self._reason(asked) or self._due
        return self._due is not None or bool(self._metrics)

    def save_due(self, *, only_if: Callable[[], bool] | None = None) -> None:
        """Save if it is time to, at a moment that a run could go on from.

        `only_if` finds that out where it is not known: it is asked when the state has been taken.
        """
        if self._due:
            self._save(self._due, only_if=only_if)
        self._metrics.clear()

    def _reason(self, asked: LoopWishes) -> str | None:
        options, step = self._options, self._run.cursor.done
        if asked.save:
            return "asked for"
        if self._best_found:
            return "best"
        by_steps = options.every_steps and step % options.every_steps == 0
        return "periodic" if by_steps or asked.is_time else None

    def roll_back_if_stuck(self) -> str | None:
        """After too many skipped updates in a row, bring the learners back to the newest healthy checkpoint.

        The cursor stays: the batches that did the harm are behind it. Returns the checkpoint's name if it was done.
        """
        learners = self._run.context.learners
        if all(
            learner.counters.skipped_in_a_row < self._options.rollback_after for learner in learners.values()
        ):
            return None
        found = self._read(
            "the newest healthy checkpoint",
            lambda read: self.store.newest(healthy=True, use=read),
            "learners",
        )
        if found is None:
            raise NonFiniteError(
                f"{self._options.rollback_after} updates in a row were not finite, and there is no healthy checkpoint to go back "
                'to yet. Lower the learning rate or clip the gradients; nonfinite="skip" would go on as it is.'
            )
        checkpoint, saved = found
        for name, learner in learners.items():
            skipped = learner.counters.skipped
            load_learner_state(learner, saved[name])
            # What was skipped since then stays counted; the checkpoint knows less.
            learner.counters.skipped, learner.counters.skipped_in_a_row = skipped, 0
        self._mark_boundary()
        return str(checkpoint)

    def between_epochs(self, *, has_waited: bool) -> None:
        """Save at the end of an epoch, unless one was saved a moment ago."""
        self._mark_boundary()
        if self._best_found:
            self._save("best")
        elif self._due:
            self._save(self._due)
        elif self._options.at_epoch_end and has_waited:
            self._save("epoch")

    def pass_begun(self) -> None:
        """The weights are about to change: what was logged was true of them as they were."""
        for learner in self._run.context.learners.values():
            learner.switches.enter()
        self._metrics.clear()
        self.bodies.begin()

    def loop_left(self) -> None:
        """A pass or an epoch is over, or was left: it may be that nothing of the loop follows."""
        for learner in self._run.context.learners.values():
            learner.switches.note_exit()

    def logged(self, values: dict[str, float]) -> None:
        """See what was logged: a checkpoint knows the newest metrics, and the best is saved at the next moment."""
        self._metrics.update(values)
        self._logged |= values.keys()
        name = self._options.best
        if name is not None and name in values and self._options.is_better(values[name], self._run.best):
            self._run.best = values[name]
            self._best_found = True

    def save_now(self, reason: str, *, only_if: Callable[[], bool] | None = None) -> str | None:
        """Save at once, wait until it is on disk, and return the checkpoints' path; None where `only_if` said no."""
        saved = self._save(reason, only_if=only_if)
        return self._newest() if saved else None

    def save_at_end(self, reason: str, *, complete: bool = True) -> str:
        """Save where the run stands, at its end."""
        self._save(reason, complete=complete)
        self._saved_digest = run_state_digest(self._run.tracked.state())
        return self._newest()

    def save_crashed(self, error: BaseException, *, resumable: bool) -> str:
        """Save after an exception; one that came in the middle of a batch, or anywhere, leaves no state to go on from.

        Return where it is, and what the next start goes on from.
        """
        # its handler raises it in whatever line is running, between two updates of one batch, say
        anywhere = isinstance(error, KeyboardInterrupt)
        complete = resumable and not anywhere and self._run.attempts == self._attempts
        self._save(f"exception {type(error).__name__}", complete=complete)
        if self._went_on_from and self._run.is_main and not isinstance(error, NonFiniteError):
            self.store.forget_attempt(self._went_on_from)  # older weights have the same bug before them
        saved = self._newest()
        if complete:
            return saved
        there = self.store.usable()
        newest = next((found.name for found in there if found.summary.complete), "the beginning")
        made = f"{saved}/{there[0].name}" if there else saved
        return f"{made}, to be looked at until a whole one is saved; the next start goes on from {newest}"

    def give_up_behind_passes(self) -> None:
        """No run can go on from what was saved behind a pass of an epoch, since the code there needs that pass."""
        whole = [found for found in self.store.usable() if found.summary.complete]
        self.store.give_up(
            found.name for found in whole if found.name == self._went_on_from or not _finds_its_way(found)
        )

    def _newest(self) -> str:
        self._wait()
        return str(self._run.directory / CHECKPOINTS)

    def _wait(self) -> None:
        if self._run.is_main:
            with self._blaming(), self._busy():
                self.store.wait()

    def _save(self, reason: str, *, complete: bool = True, only_if: Callable[[], bool] | None = None) -> bool:
        # what the doctor would follow here is no code of the user's, and some calls for each tensor
        with without_watched_operations():
            return self._save_unwatched(reason, complete=complete, only_if=only_if)

    def _save_unwatched(self, reason: str, *, complete: bool, only_if: Callable[[], bool] | None) -> bool:
        run = self._run
        logged = {name: value for name, value in run.logbook.newest.items() if name not in self._logged}
        metrics = logged | self._metrics
        release_spent_gradients(run.context)
        state, healthy = snapshot.take_run_state(run, in_pieces=self._pieces is not None)
        state["environment"]["went_on"] = self._went_on_from is not None  # its promise was made before
        run.tracked.note_sizes(snapshot.tracked_in(run, state), run.context)
        place, behind = self._place(), run.cursor.is_behind_a_pass
        only_if = self._asked_of_all(only_if)
        saved = run.agreement.from_rank_0(
            "a checkpoint",
            lambda: self._write(
                state,
                reason=reason,
                metrics=metrics,
                healthy=healthy,
                complete=complete,
                only_if=only_if,
                keep_way_back=behind,
            ),
        )
        if saved and self._pieces is not None:
            self._pieces.write(saved, state)
            if not self._options.background:
                self._wait()
        if saved:
            self._saved_at, self._saved_place, self._saved_digest = time.monotonic(), place, None
            self._best_found, self._due = False, None
        return bool(saved)

    def _asked_of_all(self, only_if: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """Return a question of the data with its answer: where each rank reads a stream of its own, they find out together."""
        if only_if is None or self._run.agreement.is_alone:
            return only_if
        goes_on = only_if()
        return lambda: goes_on

    def _write(
        self, state: dict[str, Any], *, keep_way_back: bool, complete: bool, **told: Any
    ) -> bool | str:
        """Have the store write a state; return whether it did, or the folder that the other ranks write in."""
        if self._store is None:
            self._run.mirrored.open("auto")  # the run was closed, and went on
        run, number = self._run, self.store.next_sequence
        keep = self._way_back if keep_way_back else None
        with self._blaming():  # of the save before
            saved = self.store.save(run.cursor.done, state, complete=complete, keep=keep, **told)
        run.logbook.stall_seconds = self.store.stall_seconds.total
        if saved and complete and not keep_way_back:
            self._way_back = number
        return self._pieces.folder if saved and self._pieces is not None else saved

    def _blaming(self) -> AbstractContextManager[None]:
        """Where each rank writes, name the one that a save has lost."""
        return nullcontext() if self._pieces is None else self._pieces.blaming()

    def _busy(self) -> AbstractContextManager[None]:
        """Have the other processes wait for as long as the disk takes."""
        world = self._run.context.world
        return nullcontext() if world is None else world.busy("saving a checkpoint")

    @property
    def is_unsaved(self) -> bool:
        """Whether the run has moved since it was saved."""
        return self._saved_place != self._place()

    @property
    def is_tracked_unsaved(self) -> bool:
        """Whether what the run tracks has changed since it was saved; to be asked where it ends, since all of it is read."""
        return self._saved_digest != run_state_digest(self._run.tracked.state())

    def _place(self) -> tuple[Any, ...]:
        """Return what tells whether the run has moved; updates and `run.state` move without batches, too."""
        cursor = self._run.cursor
        return (
            cursor.finished,
            cursor.epoch,
            cursor.done,
            *(stream.passes for stream in cursor.streams.values()),
            self._run.attempts,
            run_state_at_a_glance(self._run.user),
        )

    def _mark_boundary(self) -> None:
        self._attempts = self._run.attempts
        self.bodies.begin()

    def close(self, *, alive: bool = True, ended: str | None = None) -> None:
        """Finish what is being written and let go of the directory.

        `alive`: no exception ended the run; `ended`: how, where the newest checkpoint was saved before that was known.
        """
        if self._pieces is not None:
            self._pieces.close()
        if self._store is not None:
            store, self._store = self._store, None
            try:
                store.wait()
                if alive:
                    store.forget_attempts(ended)
                    self._run.logbook.forget(lambda: _marks_in(store))
            finally:
                self._left_at = store.next_sequence
                end_all(
                    self._close_mirror, store.close
                )  # in this order: what is sent lies under the store's lock
        else:
            self._close_mirror()

    def _close_mirror(self) -> None:
        if self._run.mirrored.is_open:
            with self._busy():
                self._run.mirrored.close(self._signals.ends_at(self._options.grace_seconds))


def _finds_its_way(checkpoint: "Checkpoint") -> bool:
    """Whether the body of an epoch that is resumed from it finds every pass that it had when it was saved."""
    try:
        behind = checkpoint.value("cursor", "behind")
    except CheckpointError:  # of an earlier version
        behind = False
    return checkpoint.summary.complete and not behind


def _marks_in(store: "CheckpointStore") -> list[MetricsMark]:
    """Return the marks of all checkpoints that may yet be used, from their manifests: one of them may be damaged."""
    return [MetricsMark(*checkpoint.value("logbook", "mark")) for checkpoint in store.usable()]
