# SPDX-License-Identifier: Apache-2.0
"""Batches that a loop gives out and no update is given: those between every fourth one, where gradients were to add up."""

from typing import Any

from torch import Tensor

from truestep.core.nested_structures import batch_leaves
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor

_TIMES = 4  # that the same number of bodies came before an update; fewer may be chance


class SkippedBatchDetector:
    """Counts the bodies without an update before each one with one; only where they are always as many it looks at a batch."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._label = ""
        self._idle = self._every = self._times = 0
        self._is_first = True  # of its pass: `i % 4 == 0` begins with an update
        self._is_cut = self._is_over = False
        self.asks = False
        """Whether the next batch is to be shown, before its body runs."""
        self._given: set[int] | None = None
        """Where the numbers of the batch lie that the body has, once an update of it is awaited."""

    def pass_begun(self, stream: StreamCursor) -> None:
        """A pass of the leader's begins; what was cut off by the end of the last one tells nothing."""
        self._label, self._idle, self._is_first, self._is_cut = stream.label, 0, True, False

    def body_done(self, made: int) -> None:
        """A body is over that made so many updates."""
        if self._is_over:
            return
        if not made:
            self._idle += 1
            self.asks = self._times >= _TIMES and self._idle == self._every
            return
        self.asks = False
        idle, self._idle = self._idle, 0
        is_first, self._is_first = self._is_first, False
        if idle == 0 and is_first:
            return
        self._every = self._every or idle
        # fewer than usual before the last update of a pass: `or i + 1 == len(batches)`
        self._is_over = self._is_cut or idle > self._every or self._every == 0
        self._is_cut = idle < self._every
        self._times += idle == self._every

    def note_batch_awaiting_update(self, batch: Any) -> None:
        """The body is given a batch whose update is awaited."""
        self._given = _storage_addresses(batch)
        self._run.context.on_next_batch = self._warn_if_update_of_batch

    def _warn_if_update_of_batch(self, batch: Any) -> None:
        """Say it where an update is of this very batch, and not of what was put together from all of them."""
        self._is_over, self.asks = True, False
        if not _storage_addresses(batch) & (self._given or set()):
            return
        making, every = self._run.context.counting.making, self._every + 1
        said = _SAID.format(every=every, label=self._label, idle=self._every)
        if making.num_examples:
            said += _LARGER.format(size=making.num_examples * every, part=making.num_examples)
        self._run.screen.say_once(said)


def _storage_addresses(batch: Any) -> set[int]:
    return {each.untyped_storage().data_ptr() for _, each in batch_leaves(batch) if isinstance(each, Tensor)}


_SAID = (
    "updates were made with one batch of {label!r} in {every} only: an update learns from the batch that it is given, and nothing "
    "adds up in between, so the other {idle} of each {every} are never trained on. Write net.update(loss, batch) in each body"
)
_LARGER = (
    "; for the gradient of {size} examples in the memory of {part}, run.data(..., batch_size={size}) and run.learner(..., "
    "micro_batch={part})"
)
