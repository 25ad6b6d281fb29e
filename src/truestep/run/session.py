# SPDX-License-Identifier: Apache-2.0
"""A run at work: what happens when it starts, between two batches, when it is asked to stop, and at its end."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from truestep.core.errors import CheckpointError, RunDirectoryError
from truestep.core.files import remove_unfinished_files
from truestep.core.forks import undo_in_children
from truestep.core.trials import TrialOver
from truestep.engine.parts import LearnerParts
from truestep.engine.result import Update
from truestep.model.layers.interval import Every
from truestep.run.agreement import LoopWishes
from truestep.run.announcements import nothing_is_left, run_taken_over, said_at_run_start
from truestep.run.beside import BesideUpdates
from truestep.run.cursor import StreamCursor
from truestep.run.directory import write_run_config
from truestep.run.endings import LoopEndings, end_all, error_identity, explain_loop_error, noting_error
from truestep.run.first_steps import DoctorOfFirstSteps
from truestep.run.layers import RunLayers
from truestep.run.likeness import refuse_different_ranks, share_run_weights
from truestep.run.media.folder import log_media
from truestep.run.media.kind import LoggedMedia
from truestep.run.moments import SaveMoments, refuse_other_thread
from truestep.run.notebook import end_process_or_cell, is_interactive_session
from truestep.run.omissions import RunOmissions
from truestep.run.owner import HOLDERS, refuse_later_process_group, take_over_run
from truestep.run.rates import RunRates
from truestep.run.readers import leave_run_report, write_run_environment
from truestep.run.saver import RunSaver
from truestep.run.signals import StopSignals
from truestep.run.state import RunState
from truestep.run.tracking import tracked_sizes


class RunSession:
    """Starts, saves, stops and ends a run; the engine's observer."""

    def __init__(
        self, run: RunState, statuses: Mapping[int, int] | None, *, doctor: bool, watch_layers: Every
    ) -> None:
        self._run, self.owner, self.random = run, run.owner, run.random
        self.say = run.screen.say
        self._signals, self._endings = StopSignals(statuses), LoopEndings(self)
        self.dropped = self._endings.dropped
        self._saver, self._moments = RunSaver(run, self._signals), SaveMoments(run)
        self.bodies = self._saver.bodies
        self._first_steps = DoctorOfFirstSteps(run, wanted=doctor)
        self._layers, self._rates = RunLayers(run, watch_layers), RunRates(run)
        self._omissions = RunOmissions(run)
        self._beside = BesideUpdates(run, self._omissions)
        self.started = self.save_requested = False
        self._handled: int | None = None  # the exception that was being handled when the loop began
        self._crashed = False  # an exception ended it: what is there now is no state to go on from

    # ------------------------------------------------------------------ whose it is

    def hold(self) -> None:
        """Take the directory's lock; an older run of this process lets go of it: its cell was run again."""
        take_over_run(self._run.directory)
        HOLDERS[os.path.realpath(self._run.directory)] = self
        self._saver.open()
        undo_in_children(self, RunSession._disarm)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Let go of the directory again where the run can't be made."""
        try:
            yield
        except BaseException:
            self._saver.close(alive=False)
            raise

    def give_up(self) -> None:
        """Another run of this process takes the directory over."""
        if self._endings.watching and not self.owner.is_here and self.owner.thread.is_alive():
            raise RunDirectoryError(
                f"{self._run.directory} is in use by the thread {self.owner.thread.name!r} of this process, which trains there. "
                "End that loop first, or choose another directory."
            )
        if not (self._run.is_closed or self._endings.ended or is_interactive_session()):
            self.say(run_taken_over(self._run.directory))
        self._run.is_closed = True
        self.close()
        self.owner.follower = self._run.directory

    def _disarm(self) -> None:
        """In a forked process: undo what is in place, so that nothing there acts for the run."""
        self._endings.release()
        self._signals.release()
        self._signals.requested = None
        self._run.screen.silence()
        HOLDERS.pop(os.path.realpath(self._run.directory), None)

    @property
    def is_at_work(self) -> bool:
        """Whether a loop runs: none does behind an exception out of one, whatever a notebook still holds of it."""
        return self._endings.watching

    # ------------------------------------------------------------------ start

    def starting(self) -> None:
        """Before the first computation: restore what is to be restored (the engine calls this each time)."""
        if not self.started:
            self.owner.check()
            self._restore()
        self._omissions.computes_from = self._run.cursor.step
        if self._run.cursor.left and self._on_its_way() is None:
            self._run.cursor.go_on()

    def _restore(self) -> None:
        run = self._run
        if run.is_main:
            remove_unfinished_files(run.directory)
            write_run_environment(run)
        refuse_different_ranks(run.agreement, run.context.learners)
        self._saver.divide()
        resumed = self._saver.resume()
        if resumed is None:
            share_run_weights(run.context)
        self.started = True  # only now: a run that could not be restored must not save what it holds
        self._beside.begin()
        if run.edits and run.is_main:  # what the code has changed is its configuration from now on
            write_run_config(run.directory, run.described, run.secrets)
        run.trackers.open()
        self._layers.open()
        tracked = resumed.tracked if resumed else tracked_sizes(run.tracked.state())
        for text in said_at_run_start(run, resumed, tracked):
            self.say(text)

    def start(self) -> None:
        """A loop begins: listen for signals and for the ways in which it can end."""
        self.owner.check()
        refuse_later_process_group(self._run.world_size, self._run.strategy)
        self.starting()
        self._omissions.loop_begins()
        self._crashed = self._run.is_closed = False
        self._handled = error_identity(sys.exception())
        self._beside.begin()
        self._first_steps.begin()
        self._signals.listen()
        self._endings.watch()

    def begin(self, total_epochs: int) -> None:
        """The epochs begin: show progress."""
        self._omissions.epochs_begin(total_epochs)
        self._rates.begin(total_epochs)
        first = next(iter(self._run.cursor.streams.values()), None)
        shown = total_epochs, first.source.num_batches if first else None
        self._begin(self._run.cursor.epoch, total_epochs, "epochs", shown)

    def begin_steps(self, total: int) -> None:
        """The steps begin: show progress."""
        self._begin(self._run.cursor.step, total, "steps", (0, total))

    def _begin(self, done: int, total: int, what: str, shown: tuple[int, int | None]) -> None:
        self._run.screen.begin(*shown)
        cursor = self._run.cursor
        if total <= done or cursor.finished:
            self.say(nothing_is_left(self._run.directory, cursor, total, what))

    # ------------------------------------------------------------------ the loop

    def pass_skipped(self, stream: StreamCursor) -> None:
        """A pass was over at the save already; after the last of them everything is as at the save."""
        self._moments.pass_skipped(stream)
        if not any(other.is_behind for other in self._run.cursor.streams.values()):
            self.random.resume()

    def pass_begun(self, stream: StreamCursor, *, leads: bool) -> None:
        """A pass begins, or goes on."""
        if leads:
            self.random.pass_begins()
        self.random.resume()
        self._moments.pass_begun(stream, leads=leads)
        if leads:
            self._saver.pass_begun()
            cursor = self._run.cursor
            cursor.leader, cursor.done = stream, cursor.step
            self._run.screen.progress.tick(cursor.step, cursor.epoch, stream.batch)

    def batch_done(self, stream: StreamCursor) -> None:
        """Between two batches: write, show, save, stop."""
        run, cursor = self._run, self._run.cursor
        refuse_other_thread(run.context)
        if run.logbook.write_if_due(cursor.step, cursor.epoch):
            self._rates.look(stream)
        if self._run.screen.progress.tick(cursor.step, cursor.epoch, stream.batch):
            self._run.screen.progress.show(run.logbook.newest)
        made = self._saver.body_done()
        if run.context.nonfinite == "rollback" and (checkpoint := self._saver.roll_back_if_stuck()):
            self.say(
                f"{run.saving.rollback_after} skipped updates in a row: back to the weights of {checkpoint}, then on"
            )
        self._moments.body_done(made)
        is_asked = self._signals.requested is not None or self.save_requested
        if is_asked or not run.agreement.is_alone or self._saver.may_be_due:
            asked = self._take_up(run.agreement.between_batches(self._wishes()))
            if self._saver.is_due(asked) or asked.signal:
                self._save_or_stop(stream, asked)

    def _save_or_stop(self, stream: StreamCursor, asked: LoopWishes) -> None:
        """Do what is asked for if a run could go on from here; else it waits for a moment where one can."""
        resumable = self._moments.is_between_batches_of(stream)
        only_if = stream.has_more if stream.is_open_ended else None
        if asked.signal:
            if resumable:
                self.stop(only_if=only_if)
            self._moments.tell_that_it_waits()
        if resumable:
            self._saver.save_due(only_if=only_if)

    def _wishes(self) -> LoopWishes:
        return LoopWishes(self._signals.requested or 0, self.save_requested, self._saver.is_time)

    def _take_up(self, asked: LoopWishes) -> LoopWishes:
        """What one rank was asked for, all do: the signal is everybody's, and the wish for a checkpoint is granted."""
        self._signals.requested = asked.signal or self._signals.requested
        self.save_requested = self.save_requested and not asked.save
        return asked

    def pass_closed(self, *, is_late: bool) -> None:
        """The leader's pass is over, or was left; `is_late`: another one is read by now."""
        self.random.pass_ends()
        if not is_late:
            self._saver.loop_left()

    def pass_done(self, stream: StreamCursor) -> None:
        """The leader's batches are all done: write what has been averaged so far."""
        run = self._run
        run.logbook.write_window(run.cursor.step, run.cursor.epoch)
        self._rates.pass_done(stream)
        run.screen.progress.tick(run.cursor.step, run.cursor.epoch, stream.batch)

    def epoch_ended(self) -> None:
        """Between two epochs; schedules move before anything is saved."""
        self._saver.loop_left()
        self._rates.epoch_ended()
        self._run.screen.progress.end_epoch(self._run.logbook.newest)
        self._omissions.epoch_ended()
        wishes = self._wishes()._replace(is_time=self._saver.has_waited)
        asked = self._take_up(self._run.agreement.asked("the end of an epoch", wishes))
        if asked.signal:
            self.stop()
        self._saver.between_epochs(has_waited=asked.is_time)

    def log(self, values: dict[str, float], media: Mapping[str, LoggedMedia]) -> None:
        """Write values and media by name; tell the schedules and the saver of the values."""
        self.owner.check()
        self.starting()
        if self.random.repeats:
            return  # between two passes of an epoch, before the save: it was logged then, of the weights as they were
        run, step = self._run, self._run.cursor.step
        self._saver.open()  # after the run's end: another process may be there
        written = log_media(run.directory, step, media) if run.is_main else []
        run.logbook.write(step, run.cursor.epoch, values, {each.name: each.line for each in written})
        self._run.screen.progress.note(values)
        self._omissions.logged(values, media)
        for learner in run.context.learners.values():
            learner.schedules.logged(values)
        self._saver.logged(values)
        if self._endings.ended:
            run.logbook.close()
            leave_run_report(run)
            self._saver.close(alive=False)

    def updated(self, learner: LearnerParts, update: Update) -> None:
        """Note a learner's update."""
        if self._run.cursor.leader is None:
            self._moments.updated_behind_pass()
        self._omissions.updated(learner)
        self._run.logbook.updated(learner, update)
        self._first_steps.updated(learner)
        self._layers.updated(learner)

    def failed(self, error: Exception) -> None:
        """Explain an exception out of a loss or a measure, before anybody shows it."""
        explain_loop_error(error)

    # ------------------------------------------------------------------ stopping

    def wants_to_stop(self) -> bool:
        """Whether an evaluation may be left: a signal came, and a run that is saved here finds its way."""
        streams = self._run.cursor.streams.values()
        alone = self._run.world_size == 1  # several processes agree between two batches of training
        if self._signals.requested is None or not alone or any(stream.in_body for stream in streams):
            return False
        if not (resumable := self._moments.are_resumable and not self.random.repeats):
            self._moments.tell_that_it_waits()
        return resumable

    def stop(self, *, only_if: Callable[[], bool] | None = None) -> None:
        """Save, say where, and leave as the signal asks: out of the process, or back to the notebook's cell.

        Return where `only_if` finds, when the state has been taken, that a run could not go on from it.
        """
        status = self._signals.exit_status
        if (saved := self._saver.save_now(f"signal {self._signals.requested}", only_if=only_if)) is None:
            return
        self._finish()
        self.say(
            f"stopped as asked after step {self._run.cursor.done}; saved {saved}. A run in "
            f"{self._run.directory} goes on from there."
        )
        self._signals.requested = None
        if is_interactive_session():
            self._run.cursor.take_up()
        end_process_or_cell(status)

    def _stop_after_the_end(self) -> None:
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
            self._stop_after_the_end()

    def crashed(self, error: BaseException) -> None:
        """An exception goes through the loop: save what is there, marked so; nothing here may hide it."""
        if self.owner.is_this_process:
            with noting_error(
                error, "besides, the run could not be ended in order: "
            ):  # no file can be opened, say
                self._end_by(error)

    def _end_by(self, error: BaseException) -> None:
        if self._endings.ended or not self.started or isinstance(error, TrialOver):
            self._finish()
            return
        self._crashed = True
        if self._left_together(error):
            return
        if self._moments.explained(error):
            self._give_up_behind_passes(error)
            return
        explain_loop_error(error)
        meant = isinstance(error, SystemExit | GeneratorExit)
        try:
            with noting_error(error, "besides, the run could not be saved: "):  # a full disk, say
                resumable = self._moments.are_resumable and not self.random.repeats
                saved = self._saver.save_crashed(error, resumable=resumable)
                self.say(f"{type(error).__name__} after step {self._run.cursor.done}; saved {saved}")
        finally:
            self._finish(alive=meant)

    def _left_together(self, error: BaseException) -> bool:
        """Of several processes, tell the others that this one has failed: they can't save, and go on from the last checkpoint."""
        world = self._run.context.world
        if world is not None:
            world.failed(error)
            with noting_error(error, "", CheckpointError):  # a save in flight needed the rank that failed
                self._finish(alive=False)
        return world is not None

    def _give_up_behind_passes(self, error: BaseException) -> None:
        try:
            with noting_error(error, "besides, the checkpoints could not be marked: "):
                self._saver.give_up_behind_passes()
        finally:
            self._finish(alive=False)

    def interrupted(self) -> None:
        """A cell was interrupted in the middle of a body: what stands there is no state to go on from, unless the user does."""
        cursor = self._run.cursor
        cursor.half_done = cursor.in_body
        cursor.take_up()

    def _on_its_way(self) -> BaseException | None:
        """Return the exception that left a loop and is being handled now: in a `finally` it may yet be the end of the run."""
        error = sys.exception()
        return error if error_identity(error) != self._handled and self._run.cursor.is_within else None

    # ------------------------------------------------------------------ the end

    def finish(self) -> None:
        """All epochs are done: save, write the report, give everything back."""
        self._omissions.run_ended()
        if unsaved := self._is_unsaved(looks_at_tracked=True):
            self._saver.save_at_end("finished")
        self._finish(ended=None if unsaved else "finished")
        self._stop_after_the_end()

    def close(self) -> None:
        """End the run wherever it stands; more calls do nothing."""
        if (error := self._on_its_way()) is not None:
            self.crashed(error)
        elif self.owner.is_this_process:
            if not (self.started or self._endings.ended or self._run.is_closed):
                self._begin_for_state()
            self._close(complete=not self._run.cursor.half_done)

    def _begin_for_state(self) -> None:
        """Nothing was computed: begin all the same if `run.state` has something, and keep what it had with what was put in now."""
        given = dict(self._run.user)
        # Of several processes one may close alone, and to begin is what all do.
        if given and self._run.world_size == 1:
            self.starting()
            self._run.user.update(given)

    def process_ends(self) -> None:
        """The process ends, and nobody closed the run."""
        half_done = self._run.cursor.half_done or not self.bodies.is_whole
        self._close(complete=self._moments.is_end_resumable and not half_done)

    def _close(self, *, complete: bool) -> None:
        cursor = self._run.cursor
        if cursor.in_body and complete and not self._crashed:  # a loop that was left: its body counts
            self._run.logbook.write_if_due(cursor.step, cursor.epoch)
        cursor.done = cursor.step
        looks = self.started and not self._crashed
        if looks:
            self._omissions.run_ended()
        unsaved = looks and self._is_unsaved(looks_at_tracked=not self._run.is_closed)
        if unsaved:
            self._saver.save_at_end("closed", complete=complete and not self.random.repeats)
        self._finish(ended="closed" if looks and not unsaved and not self._run.is_closed else None)
        self._run.is_closed = True

    def _is_unsaved(self, *, looks_at_tracked: bool) -> bool:
        if (world := self._run.context.world) is not None and world.error is not None:
            return False
        unsaved = self._saver.is_unsaved or (looks_at_tracked and self._saver.is_tracked_unsaved)
        return self._run.agreement.rank_0_says("the end of the run", unsaved)

    def _finish(self, *, alive: bool = True, ended: str | None = None) -> None:
        run, streams = self._run, self._run.cursor.streams.values()
        calls_in = (
            self._first_steps,
            self._layers,
            self._beside,
        )  # first whatever could call in: hooks, signals
        end_all(
            *(each.end for each in calls_in),
            *(self._endings.release, self._signals.release, run.screen.progress.close),
            partial(self._saver.close, alive=alive, ended=ended),
            run.logbook.close,
            *(stream.source.close for stream in streams),
            *([partial(leave_run_report, run)] if self.started else []),
        )
