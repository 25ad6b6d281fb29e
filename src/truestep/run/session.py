# SPDX-License-Identifier: Apache-2.0
"""A run at work: what happens when it starts, between two batches, when it is asked to stop, and at its end."""

import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from truestep.engine.learner import Learner
from truestep.engine.step import Update
from truestep.errors import RunDirectoryError
from truestep.run import snapshot
from truestep.run.cursor import Stream
from truestep.run.directory import write_json
from truestep.run.endings import Endings
from truestep.run.files import remove_partial
from truestep.run.fingerprint import fingerprint, promise
from truestep.run.first_steps import FirstSteps
from truestep.run.notebook import is_interactive
from truestep.run.progress import Progress
from truestep.run.report import write_report
from truestep.run.saver import Saver
from truestep.run.signals import StopSignals

if TYPE_CHECKING:
    from truestep.run.run import Run

# Runs that hold a directory in this process: a cell that is run again takes its own directory over.
_OPEN: "weakref.WeakValueDictionary[str, Session]" = weakref.WeakValueDictionary()


class Session:
    """Starts, saves, stops and ends a run; the engine's observer."""

    def __init__(
        self, run: "Run", *, show_progress: bool, exit_statuses: Mapping[int, int] | None, doctor: bool
    ) -> None:
        self._run = run
        key = str(run.directory.resolve())
        if (previous := _OPEN.get(key)) is not None:
            previous.close()
        _OPEN[key] = self
        self._signals = StopSignals(exit_statuses)
        self._endings = Endings(self)
        self._stream = sys.stderr if show_progress and run.is_main else None
        self._progress = Progress(None, None, None)
        self._saver = Saver(run)
        self._first_steps = FirstSteps(run, wanted=doctor)
        self._started = False
        self.save_requested = False
        self.random_at_epoch: dict[str, Any] | None = None
        """The generators as they were at the top of the epoch's body, which runs again after a resume."""
        self._random_at_save: dict[str, Any] | None = None
        self._repeats = False  # the loop goes through what it had done before the save

    # ------------------------------------------------------------------ start

    def starting(self) -> None:
        """Before the first computation: restore what is to be restored (the engine calls this each time)."""
        if not self._started:
            self._restore()

    def _restore(self) -> None:
        run = self._run
        remove_partial(run.directory)
        write_json(run.directory / "environment.json", fingerprint(run.context.device))
        resumed = self._saver.resume()
        self._started = True  # only now: a run that could not be restored must not save what it holds
        if resumed is not None:
            now = fingerprint(run.context.device)
            promised = promise(resumed.environment, now, run.choices(), resumed.changed)
            self.say(
                f"going on from {resumed.checkpoint} (step {run.step}, epoch {run.epoch}); the rest is {promised}"
            )
        elif run.holds_run:
            self.say("this run was stopped before its first checkpoint; it starts at the beginning")
        for choice in run.choices():
            if choice.weakens:
                self.say(f"{choice.name}: {choice.value}; {choice.reason}")

    def start(self) -> None:
        """A loop begins: listen for signals and for the ways in which it can end."""
        self.starting()
        self._first_steps.begin()
        self._signals.listen()
        self._endings.watch()

    def begin(self, total_epochs: int) -> None:
        """The epochs begin: show progress."""
        self._progress.close()
        self._progress = Progress(total_epochs, self._batches_per_epoch(), self._stream)
        if 0 < total_epochs <= self._run.epoch:
            self.say(f"all {total_epochs} epochs are done already; nothing is left to train")

    def _batches_per_epoch(self) -> int | None:
        first = next(iter(self._run.cursor.streams.values()), None)
        return first.source.num_batches if first else None

    # ------------------------------------------------------------------ randomness of the loop's own code

    def epoch_begins(self) -> None:
        """The body of an epoch begins."""
        if self._random_at_save is None:
            self.random_at_epoch = snapshot.random_state(self._run.context.device)

    def restore_random(self, saved: dict[str, Any], at_epoch: dict[str, Any] | None) -> None:
        """Put the generators where the code that runs next found them.

        Within an epoch that is its top: what the loop draws there is drawn again, and only where the batches go on do the
        generators stand as they did at the save.
        """
        device = self._run.context.device
        within_epoch = any(stream.passes for stream in self._run.cursor.streams.values())
        self._repeats = within_epoch
        if within_epoch and at_epoch is not None:
            self.random_at_epoch, self._random_at_save = at_epoch, saved
            snapshot.set_random_state(at_epoch, device)
        else:
            snapshot.set_random_state(saved, device)

    def _resume_random(self) -> None:
        """The first batches since the resume: from here on everything is as at the save."""
        self._repeats = False
        if self._random_at_save is not None:
            snapshot.set_random_state(self._random_at_save, self._run.context.device)
            self._random_at_save = None

    def pass_skipped(self) -> None:
        """A pass was over at the save already; after the last of them everything is as at the save."""
        if not any(other.is_behind for other in self._run.cursor.streams.values()):
            self._resume_random()

    # ------------------------------------------------------------------ the loop

    def pass_begun(self, stream: Stream, *, leads: bool) -> None:
        """A pass begins, or goes on."""
        self._resume_random()
        if leads:
            self._saver.pass_begun()
            cursor = self._run.cursor
            cursor.leader, cursor.done = stream, cursor.step
            self._progress.tick(cursor.step, cursor.epoch, stream.batch)

    def batch_done(self, stream: Stream) -> None:
        """Between two batches: write, show, save, stop."""
        run = self._run
        if run.step % run.logbook.every == 0:
            run.logbook.write_window(run.step, run.epoch)
        if self._progress.tick(run.step, run.epoch, stream.batch):
            self._progress.show(run.logbook.newest)
        if run.context.nonfinite == "rollback" and (checkpoint := self._saver.roll_back_if_stuck()):
            self.say(
                f"{run.saving.rollback_after} skipped updates in a row: back to the weights of {checkpoint}, then on"
            )
        if self._signals.requested is not None:
            self.stop()
        self._saver.between_batches(wanted=self.save_requested)
        self.save_requested = False

    def pass_done(self, stream: Stream) -> None:
        """The leader's batches are all done: write what has been averaged so far."""
        run = self._run
        run.logbook.write_window(run.step, run.epoch)
        self._progress.tick(run.step, run.epoch, stream.batch)

    def epoch_ended(self) -> None:
        """Between two epochs."""
        self._progress.end_epoch(self._run.logbook.newest)
        if self._signals.requested is not None:
            self.stop()
        self._saver.between_epochs()

    def log(self, values: dict[str, float]) -> None:
        """Write values by name; tell the schedules and the saver."""
        self.starting()
        if self._repeats:
            return  # between two passes of an epoch, before the save: it was logged then, of the weights as they were
        run = self._run
        run.logbook.write(run.step, run.epoch, values)
        self._progress.note(values)
        for learner in run.context.learners.values():
            learner.schedules.logged(values)
        self._saver.logged(values)
        if self._endings.ended:
            run.logbook.close()
            self._report()

    def updated(self, learner: Learner, update: Update) -> None:
        """Note a learner's update."""
        self._run.logbook.updated(learner, update)
        self._first_steps.updated(learner)

    def say(self, text: str) -> None:
        """Print a message on standard error, above the progress bar."""
        if self._stream is None:
            return
        if self._endings.watching:
            self._progress.line(f"truestep: {text}")
        else:
            with suppress(OSError, ValueError):  # a terminal that has gone away ends nothing
                print(f"truestep: {text}", file=self._stream)

    # ------------------------------------------------------------------ stopping

    def wants_to_stop(self) -> bool:
        """Whether an evaluation may be left: a signal came, and no batch is half done."""
        requested = self._signals.requested is not None
        return requested and not any(stream.in_body for stream in self._run.cursor.streams.values())

    def stop(self) -> None:
        """Save, say where, and leave as the signal asks: out of the process, or back to the notebook's cell."""
        status = self._signals.exit_status
        saved = self._saver.save_now(f"signal {self._signals.requested}")
        self._finish()
        self.say(
            f"stopped as asked after step {self._run.cursor.done}; saved {saved}. A run in "
            f"{self._run.directory} goes on from there."
        )
        self._signals.requested = None
        _exit(status)

    def _stop_after_the_end(self) -> None:
        """A signal came after the last moment at which the loop looks: all is saved, and what follows is not begun."""
        if self._signals.requested is not None:
            status = self._signals.exit_status
            self._signals.requested = None
            _exit(status)

    def leave(self, error: BaseException | None) -> None:
        """The `with` block ends, by itself or by an exception (which goes on upwards unchanged)."""
        if error is None:
            self.close()
            self._stop_after_the_end()
        elif isinstance(error, SystemExit | GeneratorExit) or self._endings.ended:
            self.close()
        else:
            self.crashed(error)

    def crashed(self, error: BaseException) -> None:
        """An exception goes through the loop: save what is there, marked so; nothing here may hide it."""
        if self._endings.ended or not self._started:
            self.close()
            return
        try:
            saved = self._saver.save_crashed(f"exception {type(error).__name__}")
            self.say(f"{type(error).__name__} after step {self._run.cursor.done}; saved {saved}")
        except Exception as own:  # noqa: BLE001  (a full disk, say: the user's exception is the one to see)
            error.add_note(f"truestep: besides, the run could not be saved: {own}")
        finally:
            self._finish(alive=False)

    # ------------------------------------------------------------------ the end

    def finish(self) -> None:
        """All epochs are done: save, write the report, give everything back."""
        if self._saver.is_unsaved:
            self._saver.save_now("finished")
        self._finish()
        self._stop_after_the_end()

    def close(self) -> None:
        """End the run wherever it stands; more calls do nothing."""
        self._run.cursor.done = self._run.cursor.step
        if self._started and not self._endings.ended and self._saver.is_unsaved:
            self._saver.save_at_close()
        self._finish()

    def _finish(self, *, alive: bool = True) -> None:
        self._first_steps.end()
        self._endings.release()
        self._signals.release()
        self._progress.close()
        run = self._run
        try:
            self._saver.close(alive=alive)
        finally:
            run.logbook.close()
            for stream in run.cursor.streams.values():
                stream.source.close()
            if self._started:
                self._report()

    def _report(self) -> None:
        """Write the choices and the report; what they are made of is safe, so a full disk ends nothing here."""
        run = self._run
        try:
            write_json(run.directory / "choices.json", [choice._asdict() for choice in run.context.choices])
            write_report(run.directory)
        except (OSError, RunDirectoryError) as error:
            self.say(
                f"the report could not be written ({error}); ts.write_report({str(run.directory)!r}) makes it later"
            )


def _exit(status: int) -> NoReturn:
    """Leave the process, or the notebook's cell."""
    if is_interactive():
        raise KeyboardInterrupt
    raise SystemExit(status)
