# SPDX-License-Identifier: Apache-2.0
"""At which moments a run may be saved and stopped, and what is said where a resumed body misses something."""

import threading
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from truestep.core.errors import DataError
from truestep.core.nested_structures import batch_leaves
from truestep.engine.shared_context import LearnerContext
from truestep.run.fixed_length_passes import STEPS
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor


class ResumableMoments:
    """Watches passes and updates; each thing is said once."""

    def __init__(self, run: RunState) -> None:
        self._run, self._cursor, self._screen = run, run.cursor, run.screen
        self._ahead = LateUpdateDetector()
        self._attempts_at_pass = 0
        # a pass that gave nothing since the resume, and what it had given
        self._empty: tuple[StreamCursor, int] | None = None

    def pass_skipped(self, stream: StreamCursor) -> None:
        """A pass was over at the save already, and gives nothing."""
        self._empty = (stream, stream.given)

    def pass_begun(self, stream: StreamCursor, *, leads: bool) -> None:
        """A pass begins, or goes on in its middle."""
        # the numbers of steps are never empty by a resume: what is left of them is what is to be done
        goes_on = stream.given > 0 and stream.name != STEPS
        self._empty = (stream, stream.given) if goes_on else None  # there may be nothing left of it
        if leads:
            self._ahead.pass_begun()
            self._attempts_at_pass = self._run.attempts

    def updated_behind_pass(self) -> None:
        """A learner was updated where no pass is read."""
        if self._ahead.has_updates_after_idle_pass:
            self._warn_of_batch_ahead()

    def body_done(self, stream: StreamCursor, made: int, batch: Any) -> None:
        """The next batch is asked for, and so many updates were made with this one."""
        is_late = self._ahead.body_done(made)
        # a step gives out nothing that an update could be late for: those without one warm up, as a replay buffer does
        if stream.name == STEPS:
            return
        if not made and self._ahead.note_body_without_update(batch):
            self._run.context.on_next_batch = self._ahead.updated
        if is_late and self._ahead.uses_earlier:
            self._warn_of_batch_ahead()

    def is_between_batches_of(self, stream: StreamCursor) -> bool:
        """Whether a run that is saved here, where the next batch is asked for, finds its way.

        A resumed body runs from the top of its epoch. There a pass that was over gives nothing, so `total / (i + 1)` behind it
        knows neither. So behind a pass's last batch and in a validation by hand it does not: the run is saved, or stopped, when
        what follows the pass has run.
        """
        cursor = self._cursor
        # without any, nobody can know whether the pass trains
        has_learners = bool(self._run.context.learners)
        if self._ahead.is_update_awaited and stream.name != STEPS and has_learners:
            return False
        # a resumed body meets its first pass in the middle, and every later one behind passes that give nothing
        first = cursor.is_in_first_pass_of_epoch
        if stream.is_at_last_batch and (
            first or stream.given > 1
        ):  # passes of one batch must be saved somewhere
            return stream.name == STEPS
        trains = self._run.attempts != self._attempts_at_pass or not has_learners
        return first or trains or not cursor.in_epoch_body

    @property
    def is_resumable_now(self) -> bool:
        """Whether a run that is saved now, wherever it is, finds its way; behind a pass and at the top of an epoch it does not.

        What the top of an epoch has drawn, counted and changed would be drawn, counted and changed again.
        """
        cursor = self._cursor
        if cursor.in_body:
            return False
        if cursor.leader is not None:
            return self.is_between_batches_of(cursor.leader)
        return not cursor.in_epoch_body and not any(stream.passes for stream in cursor.streams.values())

    @property
    def is_end_resumable(self) -> bool:
        """Whether a process that ends here, and may have been told to by `sys.exit`, leaves a run that finds its way.

        Behind a loop that was left the body counts as done; elsewhere in an epoch something may not have run.
        """
        cursor, leader = self._cursor, self._cursor.leader
        if not cursor.in_epoch_body or cursor.is_broken_off or cursor.finished:
            return True
        return leader is not None and self.is_between_batches_of(leader)

    def warn_that_stop_waits(self) -> None:
        """A signal came that is not obeyed yet."""
        if not self._ahead.is_update_awaited:
            self._screen.note(
                "asked to stop; the run stops when the code behind this pass has run, which after a resume would not find the "
                "pass. A second signal ends it at once, and the next start goes on from the newest checkpoint"
            )

    def explained(self, error: BaseException) -> bool:
        """Add to an exception behind a pass that gave nothing why that was so; return whether it is such a one."""
        # what has nothing to do with an empty pass needs no word about it
        outside = (
            isinstance(error, OSError | MemoryError | torch.OutOfMemoryError) or self._cursor.has_refused
        )
        if self._empty is None or outside or not isinstance(error, Exception):
            return False
        stream, given = self._empty
        if stream.given != given or self._cursor.leader is stream:
            return False
        error.add_note(
            f"truestep: the run went on in the middle of epoch {self._cursor.epoch + 1}, behind a pass through {stream.label!r} "
            "that was over, so the loop over it had no batch here. A variable that such a loop sets is not there, and a sum is "
            "empty: set it before the loop, keep it in run.state, or measure with net.evaluate. Nothing was saved, and the next "
            "start goes back to a checkpoint before that pass was over."
        )
        return True

    def _warn_of_batch_ahead(self) -> None:
        self._screen.say_once(
            "a batch was asked for before the update of the one before it, as list(batches), pairwise and prefetching by hand do: "
            "if its update comes later, a run that is stopped in between goes on without it. Ask for a batch after the update."
        )


def refuse_updates_in_other_thread(context: LearnerContext) -> None:
    """Raise a DataError where batches are read in one thread and updates made in another."""
    if context.draws.thread not in (0, threading.get_ident()):
        raise DataError(
            "run.batches is read in another thread than the one that calls update: between two batches here an update may be "
            "half done there, and nothing could be saved. Read it in the same thread; num_workers= loads ahead."
        )


_MOST = 16
"""Bodies without an update that are waited for; a loop that only measures must be saved and stopped, too."""


class LateUpdateDetector:
    """Looks how many updates each body of a pass makes, and whether one is of a batch that a body before it had."""

    def __init__(self) -> None:
        self.pass_begun()

    def pass_begun(self) -> None:
        """No body of this pass is over yet."""
        self._idle = self._idle_first = self._busy = 0
        self._unused: list[tuple[ReferenceType[Tensor], range]] = []
        self.uses_earlier: bool | None = None
        """Whether the first update behind a body without one is of that body's batch; a batch that is skipped is used by none."""

    def note_body_without_update(self, batch: Any) -> bool:
        """A body made no update with this batch; return whether the batch of the next update is to be looked at."""
        if self.uses_earlier is not None or self._idle > _MOST:
            return False
        self._unused += [(ref(each), _address_range(each)) for each in _tensors_in_batch(batch)]
        return True

    def updated(self, batch: Any) -> None:
        """An update is made with this batch."""
        there = [place for kept, place in self._unused if kept() is not None]
        own = [_address_range(each) for each in _tensors_in_batch(batch)]
        self.uses_earlier = any(
            one.start < other.stop and other.start < one.stop for one in own for other in there
        )
        self._unused = []

    def body_done(self, made: int) -> bool:
        """A body is over that made so many updates; return whether they come one batch late: none at first, then always some."""
        if made:
            self._idle, self._busy = 0, self._busy + 1
        else:
            self._idle, self._busy = self._idle + 1, 0
            self._idle_first = max(self._idle_first, self._idle)
        return 0 < self._idle_first <= _MOST and self._busy == 2

    @property
    def is_update_awaited(self) -> bool:
        """Whether the update of a batch that was given out may still come."""
        return 0 < self._idle <= _MOST

    @property
    def has_updates_after_idle_pass(self) -> bool:
        """Whether updates follow on a pass without any, in which the run may have been saved."""
        return self._idle > _MOST


def _tensors_in_batch(batch: Any) -> list[Tensor]:
    leaves = (each for _, each in batch_leaves(batch))
    return [each for each in leaves if type(each) is Tensor and each.layout is torch.strided]


def _address_range(tensor: Tensor) -> range:
    return range(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes)
