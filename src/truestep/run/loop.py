# SPDX-License-Identifier: Apache-2.0
"""The two generators of a training loop: epochs, and the batches of a pass."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.run.cursor import Stream
from truestep.run.device import CudnnTuner

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
            yield cursor.epoch
            cursor.end_epoch()
            session.epoch_ended()
        session.finish()

    def batches(self, stream: Stream) -> Iterator[Any]:
        """Yield the rest of a pass; the leader's requests are the moments between two steps."""
        cursor, session = self._run.cursor, self._run.session
        if not stream.begin():
            return
        leads = cursor.leader is None
        if leads:
            cursor.leader = stream
            cursor.done = cursor.step
            session.pass_begun(stream)
        try:
            for batch in stream.source.batches(stream.number, stream.batch):
                if leads:
                    cursor.step += 1
                    self._run.context.advance(cursor.step)
                    if self._tuner.active:
                        self._tuner.see(batch)
                stream.in_body = True
                yield batch
                stream.in_body = False
                stream.batch += 1
                if leads:
                    cursor.done = cursor.step
                    session.batch_done(stream)
        finally:
            stream.finished = True
            if leads:
                cursor.leader = None
        if leads:
            cursor.done = cursor.step
            session.pass_done(stream)
