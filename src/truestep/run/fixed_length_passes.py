# SPDX-License-Identifier: Apache-2.0
"""Passes that a source's own end does not decide: so many batches each, and the numbers of steps."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.core.errors import DataError, OptionError, intended_whole_number
from truestep.engine.data import BatchSource
from truestep.engine.data.batch_source import BatchWithOrigin

if TYPE_CHECKING:
    from truestep.run.stream_cursor import StreamCursor

STEPS = "steps"


class ContinuousPasses:
    """Reads a source on and on, one order after the other; a pass takes the next batches, wherever the last one ended.

    What reads stays open between two passes, so that a stream that can only be read from its front is read once.
    """

    def __init__(self) -> None:
        self._open: Iterator[BatchWithOrigin] | None = None
        self._place: tuple[int, int] | None = None

    def batches(self, stream: "StreamCursor", limit: int) -> Iterator[BatchWithOrigin]:
        """Yield batches until the pass has had `limit` of them."""
        while stream.given < limit:
            if self._open is None or self._place != (stream.number, stream.batch):
                self._open = stream.source.made(stream.number, stream.batch)
            reading, self._open = self._open, None  # it is over if it raises
            try:
                batch = next(reading)
            except StopIteration:
                self._start_next_pass(stream)
                continue
            self._open, self._place = reading, (stream.number, stream.batch + 1)
            yield batch

    def _start_next_pass(self, stream: "StreamCursor") -> None:
        if stream.batch == 0:
            raise DataError(
                f"{stream.label!r} gave no batch at all, and run.batches(source, limit=...) reads on until it has enough. Give "
                "data that can be read more than once (a data set, or a function that makes an iterable)."
            )
        stream.number, stream.batch = stream.number + 1, 0


class RunStepNumbers(BatchSource):
    """The numbers of the steps of a training without a data set; `total` of them."""

    num_samples = None

    def __init__(self) -> None:
        self.total = 0
        self.choices = []

    @property
    def num_batches(self) -> int:  # type: ignore[override]
        """How many steps the whole run has."""
        return self.total

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[int]:
        """Yield the numbers that are still to come."""
        yield from range(start, self.total)

    def fingerprint(self) -> dict[str, Any]:
        """Return what tells these from data; their number may change."""
        return {"kind": STEPS}


def check_loop_count(call: str, count: Any, *, at_least: int) -> None:
    """Raise an OptionError unless a whole number was given."""
    if type(count) is not int or count < at_least:
        meant = intended_whole_number(count, at_least)
        if meant is None and isinstance(count, float) and math.isfinite(count):
            meant = max(at_least, math.ceil(count))  # of len(x) / batch_size, as a rule
        form = call.partition(", how many")[0].replace("total", str(meant)).replace("...", str(meant))
        instead = "" if meant is None else f", {form}"
        raise OptionError(f"{call} was given {count!r}: give a whole number of at least {at_least}{instead}.")
