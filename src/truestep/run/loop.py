# SPDX-License-Identifier: Apache-2.0
"""The two generators of a training loop: epochs, and the batches of a pass."""

import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any

from truestep.core.call_site import leaves_loop_by_statement
from truestep.core.errors import DataError, OptionError
from truestep.core.loop_exit_exception import describe_traceback, trace_leaving_loop
from truestep.engine.data.batch_source import BatchWithOrigin
from truestep.engine.data.open_file_changes import HeldFile, reinspect_file
from truestep.run.cursor import RunCursor
from truestep.run.device import RunCudnnTuner
from truestep.run.interrupted_body_check import reason_body_was_left
from truestep.run.loop_end_record import LoopEndingExceptionRecorder
from truestep.run.notebook import is_interactive_session
from truestep.run.rank_read_check import RankDataComparison
from truestep.run.session import RunSession
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor
from truestep.run.stuck_epoch_check import refuse_loop_by_unmoving_epoch

PASS_ENDED = (
    "this pass of run.batches has ended, and next() asks for a batch more. Write for batch in run.batches(source): within "
    "for epoch in run.epochs(20):, which begins each pass anew"
)
"""What a StopIteration says that nobody but a loop takes."""

Pass = Generator[Any, None, str]


class RunLoop:
    """Moves the cursor; the session decides what happens at each boundary."""

    def __init__(self, run: RunState, session: RunSession) -> None:
        self._run, self._session = run, session
        self._tuner = RunCudnnTuner(run.context)
        self._rank_data = RankDataComparison(run.cursor, run.context.world)
        self._files = DataFileChangeWatcher(run.cursor, session.say)
        self._noting = LoopEndingExceptionRecorder(run.context.world)
        self._watched: Any = None
        self._counted: Any = None
        self._written: Any = None
        self._repeated: Any = None
        # a script's own iterator goes with its names when the process ends; modules have lost theirs by then, so it is kept here
        self._is_too_late = sys.is_finalizing

    def epochs(self, total: int, keeps: object) -> Generator[int]:
        """Yield epochs from the cursor's on; a loop `keeps` the run that it is of, as long as somebody reads it."""
        cursor, session = self._run.cursor, self._session
        session.begin(total)
        cursor.epochs = body = object()
        cursor.num_epochs, cursor.is_broken_off, cursor.is_over = total, False, ""
        try:
            while cursor.epoch < total and not cursor.finished:
                self._begin_epoch()
                with self._noting:
                    yield cursor.epoch
                # The body may have forked, and its child comes here, too.
                session.owner.check()
                cursor.in_epoch_body = False
                cursor.go_on()
                if cursor.cut:  # `run.finish()` left some of this epoch undone: it is no epoch yet
                    break
                cursor.end_epoch()
                session.epoch_ended()
                if self._written is not None:
                    self._written.epoch_over()
        finally:
            # a loop that is closed late has no part in the one that runs now
            if cursor.epochs is body and not self._is_too_late():
                cursor.epochs = None
                left = sys._getframe().f_back
                cursor.is_broken_off = leaves_loop_by_statement(left)
                if cursor.epoch < total and (cursor.is_broken_off or cursor.finished):
                    self._warn_of_unused_early_stopping(left)
        cursor.is_over = f"run.epochs({total})"
        session.end.finish()

    def _begin_epoch(self) -> None:
        cursor = self._run.cursor
        self._session.random.epoch_begins()
        cursor.in_epoch_body = True
        self._repeated = None
        if any(each.has_saved_passes_to_skip and not each.finished for each in cursor.streams.values()):
            # only an epoch that is gone on with has such a pass
            from truestep.run.repeated_lines_check import RepeatedLinesCheck

            self._repeated = RepeatedLinesCheck(self._run)

    def _warn_of_unused_early_stopping(self, frame: FrameType | None) -> None:
        module = sys.modules.get("truestep.run.early_stopping")  # else nobody has made one
        if module is None or frame is None:
            return
        values = [*frame.f_locals.values(), *frame.f_globals.values()]
        if any(
            type(each) is module.EarlyStopping and each.best is None and not each.waited for each in values
        ):
            self._run.screen.say_once(_UNASKED)

    def steps(self, total: int, keeps: object) -> Generator[int]:
        """Yield the numbers of the steps still to do."""
        cursor, session = self._run.cursor, self._session
        cursor.go_on()
        if cursor.leader is not None or cursor.is_in_epoch_body:
            kept = (
                " Where none runs, a variable still holds one that was begun (it = iter(run.steps(...))): del it, or run the cell "
                "with ts.Run(...) again."
            )
            raise OptionError(
                "run.steps is the outermost loop of a training, without run.epochs or run.batches around it: it counts the steps "
                f"of the whole run. Write range(...) for a loop within.{kept if is_interactive_session() else ''}"
            )
        stream = cursor.streams.steps(total)
        session.begin_steps(total)
        before, cursor.is_over = cursor.step, ""
        try:
            yield from self.batches(stream, keeps)
        finally:
            if stream.is_left and not self._is_too_late():
                trace = trace_leaving_loop(sys._getframe().f_back)
                cursor.steps_failed = describe_traceback(trace) if trace else ""
        if cursor.step > before:
            self._run.screen.progress.end_epoch(self._run.logbook.newest)
        cursor.is_over = f"run.steps({total})"
        session.end.finish()

    def batches(self, stream: StreamCursor, keeps: object, limit: int | None = None) -> Pass:
        """Yield the rest of a pass; the leader's requests are the moments between two steps. It returns what `next` is told.

        A generator is closed in the same way by `break`, by an exception and by the garbage collector. So how a loop was left is
        not asked here: it is decided by what follows.
        """
        cursor, session = self._run.cursor, self._session
        cursor.go_on()
        stream.check_source_not_in_use()
        leads = cursor.leader is None
        if cursor.finished:
            cursor.cut = cursor.cut or stream.num_batches_left(limit) != 0
            return PASS_ENDED
        if not stream.begin(leads=leads, limit=limit):
            session.pass_skipped(stream)
            return PASS_ENDED
        self._note_pass_begun(stream, leads=leads)
        reader = stream.reader = stream.read()
        try:
            with self._noting:
                for made in reader:
                    self._count_batch_given_out(stream, made, leads=leads)
                    yield made.batch
                    self._finish_body(stream, reader, made.batch, leads=leads)
                    if cursor.finished and stream.has_more():
                        cursor.cut_short(stream)
                        break
                else:
                    stream.end()
        finally:
            self._finish_pass(stream, reader, leads=leads)
        if leads:
            session.pass_done(stream)
        self._check_written_data(stream)
        return PASS_ENDED

    def _note_pass_begun(self, stream: StreamCursor, *, leads: bool) -> None:
        if self._run.asked_epoch and not self._run.cursor.is_in_epoch_body:
            refuse_loop_by_unmoving_epoch(self._run.asked_epoch)
        self._session.pass_begun(stream, leads=leads)
        self._warn_of_one_time_source(stream)
        if stream.limit is None and stream.source.why_endless:
            from truestep.run.endless_pass_warning import warn_of_endless_pass  # data seldom has no end

            warn_of_endless_pass(self._run, stream)
        if leads:
            self._run.cursor.body_left = ""
            if self._repeated is not None:
                self._repeated.batches_go_on()
                self._repeated = None  # else it would look at a second pass of the epoch, behind updates
        if stream.source.lists:
            self._check_lists_unchanged(stream, whole=True)
        if leads:
            self._files.look(at_once=True)
            self._rank_data.pass_begun()

    def _warn_of_one_time_source(self, stream: StreamCursor) -> None:
        cursor, kind = self._run.cursor, stream.source.reads_once
        left = cursor.num_epochs - cursor.epoch if cursor.is_in_epoch_body else 0
        if kind and left > 1:
            self._run.screen.say_once(
                f"{stream.label} is {kind}, which can be read only once, and run.epochs({cursor.num_epochs}) is for more: in "
                f"the epoch behind this one it is refused. Give run.data the function that makes it, without calling it, as "
                "run.data(rows, batch_size=32) where def rows(): yields them"
            )

    def _check_lists_unchanged(self, stream: StreamCursor, *, whole: bool = False) -> None:
        from truestep.run.data_change_warnings import check_lists_unchanged  # most data is no list

        check_lists_unchanged(self._run, stream, whole=whole)

    def _check_written_data(self, stream: StreamCursor) -> None:
        if self._written is None:
            from truestep.run.data_write_check import OverwrittenDataWatcher  # only once there is a pass

            self._written = OverwrittenDataWatcher(self._run)
        self._written.pass_over(stream)

    def _check_loop_variables(self, stream: StreamCursor) -> None:
        if self._watched is None:
            from truestep.run.graph_leak_check import RetainedGraphWatcher
            from truestep.run.manual_batch_counting import ManualLoopCounterCheck  # only once there is a loop
            from truestep.run.unsaved_loop_objects import UntrackedStateWatcher
            from truestep.run.unsaved_loop_variables import UntrackedVariableWatcher

            self._watched = (
                UntrackedStateWatcher(self._run),
                RetainedGraphWatcher(self._run),
                UntrackedVariableWatcher(self._run),
            )
            self._counted = ManualLoopCounterCheck(self._run)
        for each in self._watched:
            each.body_begins()
        self._counted.body_begins(stream)

    def _finish_body(self, stream: StreamCursor, reader: object, batch: Any, *, leads: bool) -> None:
        cursor = self._run.cursor
        self._session.owner.check()
        if stream.reader is not reader:
            stream.refuse_outdated_reader()
        self._run.context.note_batch_done(leads=leads)
        if cursor.left:  # a loop inside this one, or beside it
            cursor.go_on()
        if leads:
            cursor.body_done()
            self._session.batch_done(stream, batch)
        # last: an exception out of nowhere (a signal's) finds no half-written line of metrics done
        stream.in_body = False

    def _finish_pass(self, stream: StreamCursor, reader: object, *, leads: bool) -> None:
        """The loop is over, or was left."""
        if self._is_too_late():
            return
        cursor = self._run.cursor
        is_late = stream.reader not in (reader, None)  # it has no part in the pass that is read now
        if stream.reader is reader:
            if leads and stream.in_body:
                cursor.body_left = reason_body_was_left(sys._getframe(1))
            self._mark_loop_left_early(stream)
        if cursor.leader is stream and (stream.finished or cursor.cut):
            cursor.leader = None
        if leads:
            self._session.pass_closed(is_late=is_late)

    def _mark_loop_left_early(self, stream: StreamCursor) -> None:
        """The loop was left before the source was exhausted; what was read beside a leader that is over is over with it."""
        cursor = self._run.cursor
        if stream.beside and cursor.leader is None:
            stream.end()
        else:
            stream.reader, stream.is_left, cursor.left = None, True, True

    def _count_batch_given_out(self, stream: StreamCursor, made: BatchWithOrigin, *, leads: bool) -> None:
        """Count a batch that is about to be given out; the leader's are the run's steps."""
        if stream.source.lists:
            self._check_lists_unchanged(stream)
        stream.in_body = True
        stream.batch += 1
        stream.given += 1
        stream.read_digest = made.read
        run = self._run
        if leads:
            self._check_loop_variables(stream)
            self._files.look()
            self._rank_data.batch_given()
            run.cursor.step += 1
        run.context.note_batch_made(made.batch, made.making, leads=leads)
        if not leads:
            self._session.bodies.note_other_batch(stream)
            return
        run.context.advance(run.cursor.step)
        if self._session.passed_over.asks:
            self._session.passed_over.note_batch_awaiting_update(made.batch)
        if self._tuner.active:
            self._tuner.see(made.batch)


SECONDS, COST = 10.0, 0.001  # between two looks at most, and the share of the time that they may take

_UNASKED = (
    "this loop has ended early, and a ts.EarlyStopping of the script has got no value yet: its step is a method, which is always "
    "true where it isn't called. Write if early.step(valid_loss): run.finish()"
)
_KEEP = (
    "A file that is trained on must not change: write new data to another one, and start a new run with both"
)


class DataFileChangeWatcher:
    """Says, once each, how the files have changed since they were opened."""

    def __init__(self, cursor: RunCursor, say: Callable[[str], None]) -> None:
        self._cursor, self._say = cursor, say
        self._said: set[str] = set()
        self._due_at = 0.0

    def look(self, *, at_once: bool = False) -> None:
        """Look at all files, now and then; raises a DataError where a mapped one has lost what may be read."""
        if not at_once and time.monotonic() < self._due_at:
            return
        begin = time.monotonic()
        files = [(each.label, held) for each in self._cursor.streams.values() for held in each.source.files()]
        found = _file_change_messages(files)
        end = time.monotonic()
        # as long until the next look as keeps its cost a thousandth: files on a network answer slowly
        self._due_at = end + (min(SECONDS, (end - begin) / COST) if files else SECONDS)
        for text in found:
            # said before the read that would end the process: no exception can be raised from a SIGBUS
            if text.endswith(_SIGNAL):
                raise DataError(f"{text}.")
            if text not in self._said:
                self._said.add(text)
                self._say(text)


_SIGNAL = "ends the process by SIGBUS, without a word"


def _file_change_messages(files: list[tuple[str, HeldFile]]) -> list[str]:
    return [
        f"{label!r}: {changed}"
        for label, held in files
        if (changed := _file_change_text(held, reinspect_file(held)))
    ]


def _file_change_text(held: HeldFile, now: HeldFile | None) -> str | None:
    # by its number on the disk: a file that was put in the place of another one has the same name
    name = Path(held.path).name
    if now is None or now.number != held.number:
        what = "is gone" if now is None else "is another file"
        return (
            f"its file {name} {what} since it was opened: this process reads the old one, and a run that is started again can't. "
            f"{_KEEP}"
        )
    if now.size == held.size:
        return None
    told = f"its file {name} had {held.size:,} bytes when it was opened and has {now.size:,} now"
    if now.size > held.size:
        return f"{told}: the samples stay those that were known then. {_KEEP}"
    if held.is_mapped:
        return (
            f"{told}. Put back what is missing: it is mapped into memory, and to read what is gone {_SIGNAL}"
        )
    return f"{told}: samples that lay behind are gone. {_KEEP}"
