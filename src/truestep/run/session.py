# SPDX-License-Identifier: Apache-2.0
"""A run at work: what happens when it starts, between two batches, and when it is asked to stop."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from truestep.core.atomic_files import remove_unfinished_files
from truestep.core.forks import undo_in_children
from truestep.engine.parts import LearnerParts
from truestep.engine.result import Update
from truestep.engine.shared_context import UpdateObserver
from truestep.model.layers.interval import Every
from truestep.run.agreement import LoopRequests
from truestep.run.bypassed_learner_check import ManualTorchCallWatcher
from truestep.run.directory import write_run_config
from truestep.run.evaluation_mode_check import TrainingModeEvaluationWatcher
from truestep.run.first_steps_watch import FirstStepsDoctor
from truestep.run.fixed_length_passes import STEPS
from truestep.run.layers import RunLayerWatch
from truestep.run.loop_end_detection import add_explanation_note
from truestep.run.media.folder import write_media_files
from truestep.run.media.kind import EncodedMedia
from truestep.run.owning_process import HOLDERS, refuse_later_process_group, take_over_run_directory
from truestep.run.partial_evaluation_check import PartialEvaluationWatcher
from truestep.run.premade_model_check import ModelsBeforeSeeding
from truestep.run.rank_consistency import (
    check_switches_equal_on_ranks,
    refuse_ranks_that_differ,
    run_optimizer_options,
    share_run_weights,
)
from truestep.run.rates import LearningRateWatcher
from truestep.run.run_documents import write_run_environment, write_run_report
from truestep.run.run_end import RunEnd
from truestep.run.save_points import ResumableMoments, refuse_updates_in_other_thread
from truestep.run.saver import RunSaver
from truestep.run.signals import StopSignalListener
from truestep.run.skipped_batches_check import SkippedBatchDetector
from truestep.run.start_messages import nothing_left_to_do_message, run_start_messages
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor
from truestep.run.tracking import tracked_sizes
from truestep.run.training_omissions import TrainingOmissionWatcher


class RunSession(UpdateObserver):
    """Starts a run, saves and stops it between two batches; the engine's observer."""

    def __init__(
        self, run: RunState, statuses: Mapping[int, int] | None, *, doctor: bool, watch_layers: Every
    ) -> None:
        self._run, self.owner, self.random = run, run.owner, run.random
        self.say, self.note = run.screen.say, run.screen.note
        self._signals = StopSignalListener(statuses)
        self._saver, self._moments = RunSaver(run, self._signals), ResumableMoments(run)
        self.bodies = self._saver.bodies
        self._first_steps = FirstStepsDoctor(run, wanted=doctor)
        self._layers, self._rates = RunLayerWatch(run, watch_layers), LearningRateWatcher(run)
        self._omissions = TrainingOmissionWatcher(run)
        self.beside, self.passed_over = (
            ManualTorchCallWatcher(run, self._omissions),
            SkippedBatchDetector(run),
        )
        self._by_hand = TrainingModeEvaluationWatcher(run)
        watching = self._first_steps, self._layers, self.beside, self._by_hand
        calls_in = tuple(each.end for each in watching)
        self.end = RunEnd(
            run, self._saver, self._moments, self._signals, omissions=self._omissions, calls_in=calls_in
        )
        self.save_requested = False
        self._made_before = ModelsBeforeSeeding()
        run.context.on_evaluated = PartialEvaluationWatcher(run).evaluated

    # ------------------------------------------------------------------ whose it is

    def hold(self) -> None:
        """Take the directory's lock; an older run of this process lets go of it: its cell was run again."""
        take_over_run_directory(self._run.directory)
        HOLDERS[os.path.realpath(self._run.directory)] = self.end
        self._saver.files.open()
        undo_in_children(self.end, RunEnd.disarm)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Let go of the directory again where the run can't be made."""
        try:
            yield
        except BaseException:
            self._saver.files.close(alive=False)
            raise

    # ------------------------------------------------------------------ start

    def starting(self, *, updates: bool = False) -> None:
        """Before the first computation: restore what is to be restored (the engine calls this each time)."""
        if not self._run.has_begun:
            self.owner.check()
            self._restore_from_checkpoint()
        if updates:
            self._run.cursor.refuse_updates_after_loop()
        self._omissions.computes_from = self._run.cursor.step
        self._rates.update_begins()
        self._by_hand.end()
        if self._run.cursor.left and self.end.exception_being_handled is None:
            self._run.cursor.go_on()

    def _restore_from_checkpoint(self) -> None:
        run = self._run
        if run.is_main:
            remove_unfinished_files(run.directory)
            write_run_environment(run)
        # before anything is restored or shared: shapes that differ would break the exchanges that follow
        refuse_ranks_that_differ(run.agreement, run.context.learners, run.tracked)
        run.agreement.compare(
            partial(run_optimizer_options, run.context.learners), check_switches_equal_on_ranks
        )
        self._saver.files.divide()
        resumed = self._saver.resume()
        # a checkpoint is read by all; without one each rank may have drawn weights of its own
        if resumed is None:
            share_run_weights(run.context)
            self._made_before.look(run)
        else:  # it may be that nothing is left of the loop, and code behind it switches modes for a last evaluation
            self._saver.note_loop_left()
        self._run.has_begun = True  # only now: a run that could not be restored must not save what it holds
        self.beside.begin()
        if run.edits and run.is_main:  # what the code has changed is its configuration from now on
            write_run_config(run.directory, run.described, run.secrets)
        run.trackers.open()
        self._layers.open()
        # last, since what is said here is a promise: all of it is restored by now
        tracked = resumed.tracked if resumed else tracked_sizes(run.tracked.state())
        for text, is_warning in run_start_messages(run, resumed, tracked):
            (self.say if is_warning else self.note)(text)

    def start(self) -> None:
        """A loop begins: listen for signals and for the ways in which it can end."""
        self.owner.check()
        refuse_later_process_group(self._run.world_size, self._run.strategy)
        # what can be refused is refused before hooks and signal handlers are in place
        self.starting()
        self._omissions.loop_begins()
        self.beside.begin()
        self._first_steps.begin()
        self.end.watch()

    def begin(self, total_epochs: int) -> None:
        """The epochs begin: show progress."""
        self._omissions.epochs_begin(total_epochs)
        self._rates.begin(total_epochs)
        first = next(iter(self._run.cursor.streams.values()), None)
        shown = total_epochs, first.source.num_batches if first else None
        self._show_loop_start(self._run.cursor.epoch, total_epochs, "epochs", shown)

    def begin_steps(self, total: int) -> None:
        """The steps begin: show progress."""
        self._show_loop_start(self._run.cursor.step, total, "steps", (0, total))

    def _show_loop_start(self, done: int, total: int, what: str, shown: tuple[int, int | None]) -> None:
        self._run.screen.begin(*shown)
        cursor = self._run.cursor
        if total <= done or cursor.finished:
            self.note(nothing_left_to_do_message(self._run.directory, cursor, total, what))

    # ------------------------------------------------------------------ the loop

    def pass_skipped(self, stream: StreamCursor) -> None:
        """A pass was over at the save already; after the last of them everything is as at the save."""
        self._moments.pass_skipped(stream)
        if not any(other.has_saved_passes_to_skip for other in self._run.cursor.streams.values()):
            self.random.resume()

    def pass_begun(self, stream: StreamCursor, *, leads: bool) -> None:
        """A pass begins, or goes on."""
        # each rank draws for itself within a pass; a resumed run then has the streams of its save on top
        if leads:
            self.random.pass_begins()
            self.passed_over.pass_begun(stream)
            self._rates.warn_of_rates_set_by_hand()
        self.random.resume()
        self._moments.pass_begun(stream, leads=leads)
        self._by_hand.pass_begun(stream, leads=leads)
        if leads:
            self._saver.pass_begun()
            cursor = self._run.cursor
            cursor.leader, cursor.done = stream, cursor.step
            self._run.screen.progress.tick(cursor.step, cursor.epoch, stream.batch)

    def batch_done(self, stream: StreamCursor, batch: Any) -> None:
        """Between two batches: write, show, save, stop."""
        run, cursor = self._run, self._run.cursor
        # first of all: between two batches of this thread another one may be in the middle of an update
        refuse_updates_in_other_thread(run.context)
        if run.logbook.write_if_due(cursor.step, cursor.epoch):
            self._rates.look(stream)
        if self._run.screen.progress.tick(cursor.step, cursor.epoch, stream.batch):
            self._run.screen.progress.show(run.logbook.newest)
        # before anything may save: from here on this body counts as done
        made = self._saver.body_done()
        if run.context.nonfinite == "rollback" and (checkpoint := self._saver.roll_back_if_stuck()):
            self.say(
                f"{run.saving.rollback_after} skipped updates in a row: back to the weights of {checkpoint}, then on"
            )
        self._moments.body_done(stream, made, batch)
        self.passed_over.body_done(made)
        if stream.name == STEPS and made > 1:
            self._omissions.step_done(made)
        # Most batches end here. Several ranks must ask each time, since any of them may have been signalled.
        is_asked = self._signals.requested is not None or self.save_requested
        if is_asked or not run.agreement.is_alone or self._saver.due.is_automatic_save_possible:
            asked = self._grant_requests(run.agreement.between_batches(self._loop_requests()))
            if self._saver.due.note(asked) or asked.signal:
                self._save_or_stop(stream, asked)

    def _save_or_stop(self, stream: StreamCursor, asked: LoopRequests) -> None:
        """Do what is asked for if a run could go on from here; else it waits for a moment where one can."""
        cursor = self._run.cursor
        # of a run that is finished within an epoch, what stands below the inner loop would not be done any more
        resumable = self._moments.is_between_batches_of(stream) and not (
            cursor.finished and cursor.in_epoch_body
        )
        # Reading ahead costs a batch, so whether this one was the last is asked only if something is to be saved.
        only_if = stream.has_more if stream.is_open_ended else None
        if asked.signal:
            if resumable:
                self.end.stop(only_if=only_if)
            self._moments.warn_that_stop_waits()
        if resumable:
            self._saver.save_due(only_if=only_if)

    def _loop_requests(self) -> LoopRequests:
        return LoopRequests(self._signals.requested or 0, self.save_requested, self._saver.due.is_time)

    def _grant_requests(self, asked: LoopRequests) -> LoopRequests:
        """What one rank was asked for, all do: the signal is everybody's, and the wish for a checkpoint is granted."""
        self._signals.requested = asked.signal or self._signals.requested
        self.save_requested = self.save_requested and not asked.save
        return asked

    def pass_closed(self, *, is_late: bool) -> None:
        """The leader's pass is over, or was left; `is_late`: another one is read by now."""
        self.random.pass_ends()
        if not is_late:
            self._saver.note_loop_left()

    def pass_done(self, stream: StreamCursor) -> None:
        """The leader's batches are all done: write what has been averaged so far."""
        run = self._run
        run.cursor.done = run.cursor.step
        self._by_hand.pass_done(stream)
        run.logbook.write_window(run.cursor.step, run.cursor.epoch)
        self._rates.pass_done(stream)
        run.screen.progress.tick(run.cursor.step, run.cursor.epoch, stream.batch)

    def epoch_ended(self) -> None:
        """Between two epochs; schedules move before anything is saved."""
        # the switches as the epoch leaves them are what a save keeps
        self._saver.note_loop_left()
        self._rates.epoch_ended()
        self._run.screen.progress.end_epoch(self._run.logbook.newest)
        self._omissions.epoch_ended()
        # at an epoch's end a save is due after another time than in its middle
        wishes = self._loop_requests()._replace(is_time=self._saver.due.has_waited_since_last_save)
        asked = self._grant_requests(self._run.agreement.asked("the end of an epoch", wishes))
        if asked.signal:
            self.end.stop()
        self._saver.save_between_epochs(has_waited=asked.is_time)

    def log(self, values: dict[str, float], media: Mapping[str, EncodedMedia]) -> None:
        """Write values and media by name; tell the schedules and the saver of the values."""
        self.owner.check()
        self.starting()
        if self.random.repeats:
            return  # between two passes of an epoch, before the save: it was logged then, of the weights as they were
        run, step = self._run, self._run.cursor.step
        self._saver.files.open()  # after the run's end: another process may be there
        written = write_media_files(run.directory, step, media) if run.is_main else []
        run.logbook.write(step, run.cursor.epoch, values, {each.name: each.line for each in written})
        self._omissions.logged(values, media)
        for learner in run.context.learners.values():
            learner.schedules.logged(values)
        self._saver.due.logged(values)
        # logged behind the loop: nobody comes to close what was opened for it
        if self.end.endings.ended:
            run.logbook.close()
            write_run_report(run)
            self._saver.files.close(alive=False)

    def updated(self, learner: LearnerParts, update: Update) -> None:
        """Note a learner's update."""
        # an update where no pass leads may belong to batches taken ahead, as by list(batches)
        if self._run.cursor.leader is None:
            self._moments.updated_behind_pass()
        self._run.cursor.updates_behind += self._run.cursor.is_after_a_loop
        self._omissions.updated(learner)
        self._run.logbook.updated(learner, update)
        self._first_steps.updated(learner)
        self._layers.updated(learner)

    def failed(self, error: Exception) -> None:
        """Explain an exception out of a loss or a measure, before anybody shows it."""
        add_explanation_note(error)

    # ------------------------------------------------------------------ stopping

    def wants_to_stop(self) -> bool:
        """Whether an evaluation may be left: a signal came, and a run that is saved here finds its way."""
        streams = self._run.cursor.streams.values()
        alone = self._run.world_size == 1  # several processes agree between two batches of training
        if self._signals.requested is None or not alone or any(stream.in_body for stream in streams):
            return False
        if not (resumable := self._moments.is_resumable_now and not self.random.repeats):
            self._moments.warn_that_stop_waits()
        return resumable

    def stop(self) -> None:
        """Save, and leave as the signal asks."""
        self.end.stop()

    def leave(self, error: BaseException | None) -> None:
        """The `with` block ends, by itself or by an exception (which goes on upwards unchanged)."""
        if error is None and self.end.exception_being_handled is None and self.end.is_not_yet_begun:
            self._begin_to_keep_run_state()
        self.end.leave(error)

    def _begin_to_keep_run_state(self) -> None:
        """Nothing was computed: begin all the same if `run.state` has something, and keep what it had with what was put in now."""
        given = dict(self._run.user)
        # Of several processes one may close alone, and to begin is what all do.
        if given and self._run.world_size == 1:
            self.starting()
            self._run.user.update(given)
