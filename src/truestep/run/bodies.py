# SPDX-License-Identifier: Apache-2.0
"""How many updates the bodies of a loop make: it tells a body that is done from one that was left in its middle."""

from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor


class LoopBodies:
    """Counts the updates of each body of the leader."""

    def __init__(self, run: RunState) -> None:
        self._run, self._begun = run, 0

    def begin(self) -> None:
        """A body may begin now."""
        self._begun = self._run.attempts

    def given_beside(self, stream: StreamCursor) -> None:
        """A batch is given out that the leader does not count."""
        stream.waits = self._run.attempts == self._begun

    def end(self) -> int:
        """A body is over; return how many updates it made."""
        cursor, made = self._run.cursor, self._run.attempts - self._begun
        # kept with the run: bodies of alternating updates (a GAN's) are judged by the longest
        cursor.most_updates = max(cursor.most_updates, made)
        self.begin()
        return made

    @property
    def is_whole(self) -> bool:
        """Whether as many updates were made in this body as in the longest, as far as can be known.

        For the end of a process that says nothing: `break` behind the updates looks there like an exit between two of them. Of a
        run's first body nobody knows how many it has: one for each learner, or for each batch that was given out before the first.
        """
        cursor = self._run.cursor
        learners = self._run.context.learners.values()
        waiting = sum(stream.in_body and stream.beside and stream.waits for stream in cursor.streams.values())
        usual = cursor.most_updates or max(sum(learner.started for learner in learners), 1 + waiting)
        return not cursor.in_body or self._run.attempts - self._begun >= usual
