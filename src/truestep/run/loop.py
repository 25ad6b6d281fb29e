# SPDX-License-Identifier: Apache-2.0
"""The two generators of a training loop: epochs, and the batches of a pass."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.run.cursor import Stream
from truestep.run.device import CudnnTuner
from truestep.run.unwinding import exception_on_its_way

if TYPE_CHECKING:
    from truestep.run.run import Run


class Loop:
    """Moves the cursor; the session decides what happens at each boundary."""

    def __init__(self, run: "Run") -> None:
        self._run = run
        self._tuner = CudnnTuner(run.context)

    def epochs(self, total: int) -> Iterator[int]:
        """Yield epochs from the cursor's on."""
        cursor, session = self._run.cursor, self._run.session
        session.begin(total)
        while cursor.epoch < total:
            session.epoch_begins()
            yield cursor.epoch
            cursor.end_epoch()
            session.epoch_ended()
        session.finish()

    def batches(self, stream: Stream) -> Iterator[Any]:
        """Yield the rest of a pass; the leader's requests are the moments between two steps."""
        cursor, session = self._run.cursor, self._run.session
        stream.check_free()
        leads = cursor.leader is None
        if not stream.begin(leads=leads):
            session.pass_skipped()
            return
        session.pass_begun(stream, leads=leads)
        stream.is_read = True
        try:
            for batch in stream.source.batches(stream.number, stream.batch):
                if leads:
                    self._advance(batch)
                stream.in_body = True
                yield batch
                stream.in_body = False
                stream.batch += 1
                if leads:
                    cursor.done = cursor.step
                    session.batch_done(stream)
        except GeneratorExit:
            stream.interrupted = exception_on_its_way()
            raise
        finally:
            stream.finished, stream.is_read = True, False
            if leads:
                cursor.leader = None
        if leads:
            cursor.done = cursor.step
            session.pass_done(stream)

    def _advance(self, batch: Any) -> None:
        """Count a batch of the leader that is about to be given out."""
        run = self._run
        run.cursor.step += 1
        run.context.advance(run.cursor.step)
        if self._tuner.active:
            self._tuner.see(batch)
