# SPDX-License-Identifier: Apache-2.0
"""Saving a run, and bringing it back to what it was saved as."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from truestep.core.errors import CheckpointError, NonFiniteError, RunDirectoryError, TruestepError
from truestep.doctor.runtime.operations import without_watched_operations
from truestep.engine.out_of_memory import release_spent_gradients
from truestep.engine.state import load_learner_state
from truestep.report.metrics_rollback import NOTHING
from truestep.run import snapshot
from truestep.run.checkpoint_reading import (
    Choose,
    Found,
    Read,
    SharedCheckpointReading,
    read_checkpoint_alone,
)
from truestep.run.run_checkpoints import RunStore, metrics_marks_of_checkpoints
from truestep.run.save_schedule import DueSaveChecker, LastSavedPosition
from truestep.run.settings_without_secrets import restore_secrets_from_code
from truestep.run.signals import StopSignalListener
from truestep.run.start_messages import ResumedRunStart
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor
from truestep.run.tracking import tracked_sizes

if TYPE_CHECKING:
    from truestep.checkpoints import Checkpoint


class RunSaver:
    """Takes a run's state and has it written; reads it and puts it back."""

    def __init__(self, run: RunState, signals: StopSignalListener) -> None:
        self._run = run
        self.files, self.due, self.place = RunStore(run, signals), DueSaveChecker(run), LastSavedPosition(run)
        self._went_on_from: str | None = None
        self._way_back: int | None = None  # the newest save from which a body finds every pass that it has
        self._attempts = 0  # updates of all learners, up to the last moment between two batches
        self.bodies = LoopBodyUpdateCounter(run)

    def resume(self) -> ResumedRunStart | None:
        """Bring the run to its newest checkpoint; return what it begins from, None where there is nothing."""
        for learner in self._run.context.learners.values():
            learner.switches.begin()  # more may be frozen since the learner was made
        found = self._read_chosen_checkpoint("the checkpoint that it goes on from", self._newest_resumable)
        self._begin_counting_body()
        if found is None and self._run.resume_as == "must":
            raise RunDirectoryError(
                f"{self._run.directory} holds a run that was stopped before its first checkpoint, and resume='must' was asked for. "
                "Use resume='auto' to start it from the beginning."
            )
        if found is None:
            self._run.logbook.remove_lines_after(NOTHING)  # lines of a start that came to no checkpoint
            return None
        name, state = found[0], restore_secrets_from_code(self._run, found[1])
        try:
            changed = snapshot.check_edits_since_run_start(self._run, state)
        except TruestepError:
            if self._run.is_main:
                # It was the code that was refused: no attempt has died of this checkpoint.
                self.files.store.forget_attempt(name)
            raise
        changed += snapshot.restore_run(
            self._run, state, metrics_marks_of_checkpoints(self.files.store) if self._run.is_main else ()
        )
        self._note_saved_position(name)
        return ResumedRunStart(
            name, state["environment"], changed, tracked_sizes(snapshot.tracked_states(self._run, state))
        )

    def _note_saved_position(self, name: str) -> None:
        """The run stands where a checkpoint has it: nothing is unsaved."""
        self._begin_counting_body()
        self.place.note(self.place.here())
        self.place.note_tracked_as_saved()
        self._went_on_from = name
        if self._run.is_main:
            ways_back = filter(_is_resumable_in_epoch, self.files.store.usable())
            self._way_back = next((found.summary.sequence for found in ways_back), None)

    def _read_chosen_checkpoint(self, what: str, choose: Choose, *under: str) -> Found:
        """Return the checkpoint that rank 0 chooses, and what it has under a path.

        Where weights are divided and all see the disk, each rank reads what it needs; else rank 0 reads, and gives it to all.
        """
        run, world = self._run, self._run.context.world
        if world is None or self.files.pieces is None or not self.files.pieces.is_shared:
            read = partial(read_checkpoint_alone, choose, lambda c: c.load(*under))
            return run.agreement.broadcast_tree_from_rank_0(what, read)  # type: ignore[no-any-return]
        part_of = snapshot.state_parts_needed_here(run)
        reading = SharedCheckpointReading(
            world, self.files.folder, what, lambda c: c.load(*under, part_of=part_of)
        )
        return reading.found(choose)

    def _newest_resumable(self, read: Read) -> "Checkpoint | None":
        found = self.files.store.resume(read) if self._run.holds_run else None
        self._run.mirrored.wait_for_attempt_in_store()
        return None if found is None else found.checkpoint

    def body_done(self) -> int:
        """The next batch is asked for: note how many updates this body made, and return it."""
        self._run.mirrored.look()
        self._attempts = self._run.attempts
        return self.bodies.end()

    def save_due(self, *, only_if: Callable[[], bool] | None = None) -> None:
        """Save if it is time to, at a moment that a run could go on from.

        `only_if` finds that out where it is not known: it is asked when the state has been taken.
        """
        if self.due.reason:
            self._save_checkpoint(self.due.reason, only_if=only_if)
        self.due.forget_logged_metrics()

    def roll_back_if_stuck(self) -> str | None:
        """After too many skipped updates in a row, bring the learners back to the newest healthy checkpoint.

        The cursor stays: the batches that did the harm are behind it. Returns the checkpoint's name if it was done.
        """
        learners, many = self._run.context.learners, self._run.saving.rollback_after
        if all(learner.counters.skipped_in_a_row < many for learner in learners.values()):
            return None
        found = self._read_chosen_checkpoint(
            "the newest healthy checkpoint",
            lambda read: self.files.store.newest(healthy=True, use=read),
            "learners",
        )
        if found is None:
            raise NonFiniteError(
                f"{many} updates in a row were not finite, and there is no healthy checkpoint to go back "
                'to yet. Lower the learning rate or clip the gradients; nonfinite="skip" would go on as it is.'
            )
        checkpoint, saved = found
        for name, learner in learners.items():
            skipped = learner.counters.skipped
            load_learner_state(learner, saved[name])
            # What was skipped since then stays counted; the checkpoint knows less.
            learner.counters.skipped, learner.counters.skipped_in_a_row = skipped, 0
        self._begin_counting_body()
        return str(checkpoint)

    def save_between_epochs(self, *, has_waited: bool) -> None:
        """Save at the end of an epoch, unless one was saved a moment ago."""
        self._begin_counting_body()
        if reason := self.due.reason_to_save_at_epoch_end(has_waited=has_waited):
            self._save_checkpoint(reason)

    def pass_begun(self) -> None:
        """The weights are about to change: what was logged was true of them as they were."""
        for learner in self._run.context.learners.values():
            learner.switches.enter()
        self.due.forget_logged_metrics()
        self.bodies.begin()

    def note_loop_left(self) -> None:
        """A pass or an epoch is over, or was left: it may be that nothing of the loop follows."""
        for learner in self._run.context.learners.values():
            learner.switches.note_exit()

    def save_now(
        self, reason: str, *, complete: bool = True, only_if: Callable[[], bool] | None = None
    ) -> str | None:
        """Save at once, wait until it is on disk, and return where it is; None where `only_if` said no."""
        saved = self._save_checkpoint(reason, complete=complete, only_if=only_if)
        return self._newest_checkpoint_location(complete=complete) if saved else None

    def save_at_end(self, reason: str, *, complete: bool = True) -> str:
        """Save where the run stands, at its end; return where it is, and what the next start goes on from."""
        self._save_checkpoint(reason, complete=complete)
        self.place.note_tracked_as_saved()
        return self._newest_checkpoint_location(complete=complete)

    def save_crashed(self, error: BaseException, *, resumable: bool) -> str:
        """Save after an exception; one that came in the middle of a batch, or anywhere, leaves no state to go on from.

        Return where it is, and what the next start goes on from.
        """
        # its handler raises it in whatever line is running, between two updates of one batch, say
        anywhere = isinstance(error, KeyboardInterrupt)
        complete = resumable and not anywhere and self._run.attempts == self._attempts
        self._save_checkpoint(f"exception {type(error).__name__}", complete=complete)
        if self._went_on_from and self._run.is_main and not isinstance(error, NonFiniteError):
            self.files.store.forget_attempt(self._went_on_from)  # older weights have the same bug before them
        return self._newest_checkpoint_location(complete=complete)

    def _newest_checkpoint_location(self, *, complete: bool) -> str:
        saved = self._newest_checkpoint_folder()
        if complete or not self._run.is_main:  # rank 0 holds the checkpoints, and tells
            return saved
        there = self.files.store.usable()
        newest = next((found.name for found in there if found.summary.complete), "the beginning")
        made = f"{saved}/{there[0].name}" if there else saved
        return f"{made}, to be looked at until a whole one is saved; the next start goes on from {newest}"

    def mark_unresumable_after_pass(self) -> None:
        """No run can go on from what was saved behind a pass of an epoch, since the code there needs that pass."""
        whole = [found for found in self.files.store.usable() if found.summary.complete]
        self.files.store.give_up(
            found.name
            for found in whole
            if found.name == self._went_on_from or not _is_resumable_in_epoch(found)
        )

    def _newest_checkpoint_folder(self) -> str:
        self.files.wait()
        return str(self.files.folder)

    def _save_checkpoint(
        self, reason: str, *, complete: bool = True, only_if: Callable[[], bool] | None = None
    ) -> bool:
        # what the doctor would follow here is no code of the user's, and some calls for each tensor
        with without_watched_operations():
            return self._save_without_watching(reason, complete=complete, only_if=only_if)

    def _save_without_watching(
        self, reason: str, *, complete: bool, only_if: Callable[[], bool] | None
    ) -> bool:
        run = self._run
        metrics = self.due.metrics()
        # a save needs room for a copy of the state, and the gradients of the last step are needed by nobody
        release_spent_gradients(run.context)
        state, healthy = snapshot.take_run_state(run)
        state["environment"]["went_on"] = self._went_on_from is not None  # its promise was made before
        run.tracked.note_sizes(snapshot.tracked_states(run, state), run.context)
        place, behind = self.place.here(), run.cursor.is_after_a_pass
        only_if = self._ask_on_all_ranks(only_if)
        # rank 0 alone writes; the others learn whether it did, and where
        saved = run.agreement.broadcast_json_from_rank_0(
            "a checkpoint",
            lambda: self._write_state(
                state,
                reason=reason,
                metrics=metrics,
                healthy=healthy,
                complete=complete,
                only_if=only_if,
                keep_way_back=behind,
            ),
        )
        if saved and self.files.pieces is not None:
            self.files.pieces.write(saved, state)
            if not self._run.saving.background:
                self.files.wait()
        if saved:
            self.place.note(place)
            self.due.saved()
        return bool(saved)

    def _ask_on_all_ranks(self, only_if: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """Return a question of the data with its answer: where each rank reads a stream of its own, they find out together."""
        if only_if is None or self._run.agreement.is_alone:
            return only_if
        goes_on = only_if()
        return lambda: goes_on

    def _write_state(
        self, state: dict[str, Any], *, keep_way_back: bool, complete: bool, **told: Any
    ) -> bool | str:
        """Have the store write a state; return whether it did, or the folder that the other ranks write in."""
        if not self.files.is_open:
            self._run.mirrored.open("auto")  # the run was closed, and went on
        run, number = self._run, self.files.store.next_sequence
        keep = self._way_back if keep_way_back else None
        with self.files.blame_lost_rank():  # of the save before
            saved = self.files.store.save(run.cursor.done, state, complete=complete, keep=keep, **told)
        run.logbook.stall_seconds = self.files.store.stall_seconds.total
        if saved and complete and not keep_way_back:
            self._way_back = number
        return self.files.pieces.folder if saved and self.files.pieces is not None else saved

    def _begin_counting_body(self) -> None:
        self._attempts = self._run.attempts
        self.bodies.begin()


def _is_resumable_in_epoch(checkpoint: "Checkpoint") -> bool:
    """Whether the body of an epoch that is resumed from it finds every pass that it had when it was saved."""
    try:
        behind = checkpoint.value("cursor", "behind")
    except CheckpointError:  # of an earlier version
        behind = False
    return checkpoint.summary.complete and not behind


class LoopBodyUpdateCounter:
    """Counts the updates of each body of the leader."""

    def __init__(self, run: RunState) -> None:
        self._run, self._begun = run, 0

    def begin(self) -> None:
        """A body may begin now."""
        self._begun = self._run.attempts

    def note_other_batch(self, stream: StreamCursor) -> None:
        """A batch is given out that the leader does not count."""
        stream.waits = self._run.attempts == self._begun

    def end(self) -> int:
        """A body is over; return how many updates it made."""
        cursor, made = self._run.cursor, self._run.attempts - self._begun
        # kept with the run: bodies of alternating updates (a GAN's) are judged by the longest
        cursor.most_updates = max(cursor.most_updates, made)
        self.begin()
        return made

    @property
    def is_whole(self) -> bool:
        """Whether as many updates were made in this body as in the longest, as far as can be known.

        For the end of a process that says nothing: `break` behind the updates looks there like an exit between two of them. Of a
        run's first body nobody knows how many it has: one for each learner, or for each batch that was given out before the first.
        """
        cursor = self._run.cursor
        learners = self._run.context.learners.values()
        waiting = sum(stream.in_body and stream.beside and stream.waits for stream in cursor.streams.values())
        usual = cursor.most_updates or max(sum(learner.started for learner in learners), 1 + waiting)
        made = self._run.attempts - self._begun
        return not cursor.in_body or (made >= usual and self._run.context.torn_at != cursor.step)
