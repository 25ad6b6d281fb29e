# SPDX-License-Identifier: Apache-2.0
"""How a run ends: as it was asked to, by an exception, behind its last epoch, or with the process."""

import os
import sys
from collections.abc import Callable
from functools import partial

from truestep.core.errors import CheckpointError, RankError, RunDirectoryError
from truestep.core.trial_runs import TrialOver
from truestep.run.loop_end_detection import (
    LoopEndHooks,
    add_explanation_note,
    call_all_then_raise,
    error_identity,
    note_further_errors,
)
from truestep.run.notebook import end_process_or_cell, is_interactive_session
from truestep.run.owning_process import HOLDERS
from truestep.run.run_documents import write_run_report
from truestep.run.save_points import ResumableMoments
from truestep.run.saver import RunSaver
from truestep.run.signals import StopSignalListener
from truestep.run.start_messages import (
    abandoned_body_message,
    interrupted_body_message,
    run_taken_over_message,
    stopped_by_signal_message,
    unfinished_body_message,
)
from truestep.run.state import RunState
from truestep.run.training_omissions import TrainingOmissionWatcher


class RunEnd:
    """Saves what is there if a run could go on from it, says so, and gives everything back."""

    def __init__(
        self,
        run: RunState,
        saver: RunSaver,
        moments: ResumableMoments,
        signals: StopSignalListener,
        *,
        omissions: TrainingOmissionWatcher,
        calls_in: tuple[Callable[[], None], ...],
    ) -> None:
        self._run, self._saver, self._moments = run, saver, moments
        self._signals, self._omissions, self._calls_in = signals, omissions, calls_in
        self.owner, self.endings = run.owner, LoopEndHooks(self)
        self._handled: int | None = None  # the exception that was being handled when the loop began
        self._crashed = False  # an exception ended it: what is there now is no state to go on from

    # ------------------------------------------------------------------ a loop is watched

    def watch(self) -> None:
        """A loop begins: listen for signals and for the ways in which it can end; what ended before does not count."""
        self._crashed = self._run.is_closed = False
        self._handled = error_identity(sys.exception())
        self._signals.listen()
        self.endings.watch()

    def disarm(self) -> None:
        """In a forked process: undo what is in place, so that nothing there acts for the run."""
        self.endings.release()
        self._signals.release()
        self._signals.clear_request()
        self._run.screen.silence()
        HOLDERS.pop(os.path.realpath(self._run.directory), None)

    @property
    def loops(self) -> bool:
        """Whether a body of the run's loop runs."""
        return self._run.cursor.in_body

    @property
    def loops_without_learners(self) -> bool:
        """Whether a body of the run's loop runs, and the run has no learner that it could train."""
        return self._run.cursor.in_body and not self._run.context.learners

    def give_up(self) -> None:
        """Another run of this process takes the directory over."""
        if self.endings.watching and not self.owner.is_here and self.owner.thread.is_alive():
            raise RunDirectoryError(
                f"{self._run.directory} is in use by the thread {self.owner.thread.name!r} of this process, which trains there. "
                "End that loop first, or choose another directory."
            )
        if not (self._run.is_closed or self.endings.ended or is_interactive_session()):
            self._run.screen.note(run_taken_over_message(self._run.directory))
        self._run.is_closed = True
        # what a loop that was left half done leaves is no state for the newer run to go on from
        self.close(only_whole=True)
        self.owner.follower = self._run.directory

    @property
    def is_not_yet_begun(self) -> bool:
        """Whether nothing was begun, nor ended, by this process."""
        run = self._run
        return self.owner.is_this_process and not (run.has_begun or self.endings.ended or run.is_closed)

    # ------------------------------------------------------------------ stopping

    def stop(self, *, only_if: Callable[[], bool] | None = None) -> None:
        """Save, say where, and leave as the signal asks: out of the process, or back to the notebook's cell.

        Return where `only_if` finds, when the state has been taken, that a run could not go on from it.
        """
        status, complete = self._signals.exit_status, not self._signals.insisted
        reason = f"signal {self._signals.requested}"
        if (saved := self._saver.save_now(reason, complete=complete, only_if=only_if)) is None:
            return
        # before the words, which are a promise: all is on disk and the lock is free
        self._release_everything()
        self._run.screen.note(
            stopped_by_signal_message(self._run.directory, self._run.cursor, saved, complete=complete)
        )
        self._signals.clear_request()
        if is_interactive_session():
            self._run.cursor.take_up()
        end_process_or_cell(status)

    def _stop_by_late_signal(self) -> None:
        """A signal came after the last moment at which the loop looks: all is saved, and what follows is not begun."""
        if self._signals.requested is not None:
            status, self._signals.requested = self._signals.exit_status, None
            end_process_or_cell(status)

    def leave(self, error: BaseException | None) -> None:
        """The `with` block ends, by itself or by an exception (which goes on upwards unchanged)."""
        if error is not None:
            self.crashed(error)
        else:
            self.close()
            self._stop_by_late_signal()

    def crashed(self, error: BaseException) -> None:
        """An exception goes through the loop: save what is there, marked so; nothing here may hide it."""
        if self.owner.is_this_process:
            # no file can be opened, say
            with note_further_errors(error, "besides, the run could not be ended in order: "):
                self._end_by_exception(error)

    def _end_by_exception(self, error: BaseException) -> None:
        if self.endings.ended or not self._run.has_begun or isinstance(error, TrialOver):
            if not self._run.has_begun:
                add_explanation_note(error)
            self._release_everything()
            return
        # noted first: a program that catches the exception and closes the run has nothing more saved
        self._crashed = True
        if self._tell_other_ranks_of_failure(error):
            return
        if self._moments.explained(error):
            self._mark_unresumable_checkpoints(error)
            return
        add_explanation_note(error)
        meant = isinstance(error, SystemExit | GeneratorExit)
        try:
            with note_further_errors(error, "besides, the run could not be saved: "):  # a full disk, say
                resumable = self._moments.is_resumable_now and not self._run.random.repeats
                saved = self._saver.save_crashed(error, resumable=resumable)
                self._run.screen.note(
                    f"{type(error).__name__} after step {self._run.cursor.done}; saved {saved}"
                )
        finally:
            self._release_everything(alive=meant)

    def _tell_other_ranks_of_failure(self, error: BaseException) -> bool:
        """Of several processes, tell the others that this one has failed: they can't save, and go on from the last checkpoint."""
        world = self._run.context.world
        if world is None:
            return False
        world.failed(error)
        # where another one failed, it knows why
        is_behind = not isinstance(error, RankError) and self._moments.explained(error)
        with note_further_errors(error, "", CheckpointError):  # a save in flight needed the rank that failed
            if is_behind and self._run.is_main:
                self._mark_unresumable_checkpoints(error)
            else:
                self._release_everything(alive=False)
        return True

    def _mark_unresumable_checkpoints(self, error: BaseException) -> None:
        try:
            with note_further_errors(error, "besides, the checkpoints could not be marked: "):
                self._saver.mark_unresumable_after_pass()
        finally:
            self._release_everything(alive=False)

    def interrupted(self) -> None:
        """A cell was interrupted in the middle of a body: what stands there is no state to go on from, unless the user does."""
        cursor = self._run.cursor
        cursor.half_done = cursor.in_body
        if cursor.half_done:
            self._run.screen.say(interrupted_body_message(cursor))
        cursor.take_up()

    @property
    def exception_being_handled(self) -> BaseException | None:
        """Return the exception that left a loop and is being handled now: in a `finally` it may yet be the end of the run."""
        error = sys.exception()
        return error if error_identity(error) != self._handled and self._run.cursor.is_within else None

    # ------------------------------------------------------------------ the end

    def finish(self) -> None:
        """All epochs are done: save, write the report, give everything back."""
        self._omissions.run_ended()
        if unsaved := self._has_unsaved_changes(looks_at_tracked=True):
            self._saver.save_at_end("finished")
        self._release_everything(ended=None if unsaved else "finished")
        self._wait_for_rank_0()
        self._stop_by_late_signal()

    def _wait_for_rank_0(self) -> None:
        """Let no process go on before all is on disk: behind the loop each may read weights from there."""
        if (world := self._run.context.world) is not None and world.error is None:
            self._run.agreement.broadcast_answer_of_rank_0("what was saved at the end", True)

    def close(self, *, only_whole: bool = False) -> None:
        """End the run wherever it stands; more calls do nothing. With `only_whole` a body that nobody ended does not count."""
        if (error := self.exception_being_handled) is not None:
            self.crashed(error)
        elif self.owner.is_this_process:
            self._close_and_report_left_body(
                complete=self._is_state_resumable if only_whole else not self._run.cursor.is_body_half_done
            )

    @property
    def _is_state_resumable(self) -> bool:
        """Whether a run can go on from what stands here, wherever its code left its loop."""
        half_done = self._run.cursor.is_body_half_done or not self._saver.bodies.is_whole
        return self._moments.is_end_resumable and not half_done

    def close_at_process_end(self, *, is_dropped: bool = False) -> None:
        """The process ends, or nobody holds the run any more, and nobody closed it."""
        cursor, complete = self._run.cursor, self._is_state_resumable
        try:
            saved = self._close_and_report_left_body(complete=complete)
        except BaseException:
            self._release_everything(alive=False)  # nobody comes to close it once more
            raise
        if saved and not complete and not cursor.body_left:
            self._run.screen.say(unfinished_body_message(cursor, saved, is_dropped=is_dropped))

    def _close_and_report_left_body(self, *, complete: bool) -> str:
        """Close the run, and say where a body counts as not done since an exception has left it that nobody told of."""
        saved, cursor = self._save_and_close(complete=complete), self._run.cursor
        if saved and not complete and cursor.body_left:
            self._run.screen.say(abandoned_body_message(cursor, saved))
        return saved

    def _save_and_close(self, *, complete: bool) -> str:
        """Close the run; return where its state was saved, if it had to be."""
        cursor = self._run.cursor
        if cursor.in_body and complete and not self._crashed:  # a loop that was left: its body counts
            self._run.logbook.write_if_due(cursor.step, cursor.epoch)
        # a save counts bodies that are over; nobody comes back to this one
        cursor.done = cursor.step
        looks = self._run.has_begun and not self._crashed
        if looks:
            self._omissions.run_ended()
        unsaved = looks and self._has_unsaved_changes(looks_at_tracked=not self._run.is_closed)
        saved = ""
        if unsaved:
            saved = self._saver.save_at_end("closed", complete=complete and not self._run.random.repeats)
        self._release_everything(
            ended="closed" if looks and not unsaved and not self._run.is_closed else None
        )
        self._run.is_closed = True
        return saved

    def _has_unsaved_changes(self, *, looks_at_tracked: bool) -> bool:
        if (world := self._run.context.world) is not None and world.error is not None:
            return False
        # what is tracked is read only at the end, since reading it may be slow
        unsaved = self._saver.place.has_moved_since_save or (
            looks_at_tracked and self._saver.place.has_tracked_state_changed
        )
        return self._run.agreement.broadcast_answer_of_rank_0("the end of the run", unsaved)

    def _release_everything(self, *, alive: bool = True, ended: str | None = None) -> None:
        run, streams = self._run, self._run.cursor.streams.values()
        call_all_then_raise(
            *self._calls_in,  # first whatever could call in: hooks, signals
            *(self.endings.release, self._signals.release, run.screen.progress.close),
            partial(self._saver.files.close, alive=alive, ended=ended),
            run.logbook.close,
            *(stream.source.close for stream in streams),
            *([partial(write_run_report, run)] if self._run.has_begun else []),
        )
