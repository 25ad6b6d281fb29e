# SPDX-License-Identifier: Apache-2.0
"""At which moments a run may be saved and stopped, and what is said where a resumed body misses something."""

from collections.abc import Callable

from truestep.engine.context import Context
from truestep.run.cursor import Cursor, Stream
from truestep.run.onward import STEPS
from truestep.run.taken_ahead import TakenAhead


class Moments:
    """Watches passes and updates; each thing is said once. `trains` tells whether the leader's pass has made updates."""

    def __init__(
        self, context: Context, cursor: Cursor, *, trains: Callable[[], bool], say: Callable[[str], None]
    ) -> None:
        self._context, self._cursor, self._trains, self._say = context, cursor, trains, say
        self._told_of_sums = self._told_of_ahead = self._told_of_waiting = False
        self._ahead = TakenAhead()
        self._empty: str | None = None  # the stream whose pass gave nothing, until a batch is given

    def pass_skipped(self, stream: Stream) -> None:
        """A pass was over at the save already, and gives nothing."""
        self._empty = stream.name

    def pass_begun(self, stream: Stream, *, leads: bool) -> None:
        """A pass begins, or goes on in its middle."""
        self._empty = None
        if leads:
            self._ahead.pass_begun()
        if stream.given and stream.name != STEPS and not self._told_of_sums:
            self._told_of_sums = True
            self._say(
                f"the pass through {stream.name!r} goes on at its batch {stream.given + 1}: what the loop sums up in variables of "
                "its own begins anew there (keep it in run.state, or measure with net.evaluate)"
            )

    def updated(self) -> None:
        """A learner was updated."""
        if self._cursor.leader is None and self._ahead.is_whole_pass:
            self._tell_of_ahead()
        self._ahead.updated()

    def body_done(self, stream: Stream) -> bool:
        """Between two batches: return whether a run that is saved here finds its way.

        A resumed body runs from the top of its epoch. There a pass that was over gives nothing, so `total / (i + 1)` behind it
        knows neither. So behind a pass's last batch and in a validation by hand it does not: the run is saved, or stopped, when
        what follows the pass has run.
        """
        self._ahead.body_done()
        if self._ahead.is_seen:
            self._tell_of_ahead()
        cursor = self._cursor
        if self._ahead.is_waiting and stream.name != STEPS and self._context.learners:
            return False
        if not cursor.in_epochs:
            return True
        first = cursor.is_in_first_pass
        if stream.is_at_last and (first or stream.given > 1):  # passes of one batch must be saved somewhere
            return False
        return first or self._trains()

    def tell_that_it_waits(self) -> None:
        """A signal came that is not obeyed yet."""
        if not (self._ahead.is_waiting or self._told_of_waiting):
            self._told_of_waiting = True
            self._say(
                "asked to stop; the run stops when the code behind this pass has run, which after a resume would not find the pass"
            )

    def explained(self, error: BaseException) -> bool:
        """Add to an exception behind a pass that gave nothing why that was so; return whether it is such a one."""
        if self._empty is None or not isinstance(error, Exception):
            return False
        error.add_note(
            f"truestep: the run went on in the midst of epoch {self._cursor.epoch}, behind a pass through {self._empty!r} that was "
            "over, so the loop over it had no batch here. A variable that such a loop sets is not there, and a sum is empty: set "
            "it before the loop, keep it in run.state, or measure with net.evaluate. Nothing was saved."
        )
        return True

    def _tell_of_ahead(self) -> None:
        if not self._told_of_ahead:
            self._told_of_ahead = True
            self._say(
                "a batch was asked for before the update of the one before it, as list(batches), pairwise and prefetching by hand "
                "do: if its update comes later, a run that is stopped in between goes on without it. Ask for a batch after "
                "the update."
            )
