# SPDX-License-Identifier: Apache-2.0
"""Noticing how a loop ends when nobody tells: by an exception nobody caught, by the end of the process, of a cell."""

import atexit
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from truestep.run.notebook import shell

if TYPE_CHECKING:
    from truestep.run.session import Session


class Endings:
    """Hooks that are in place from a loop's start to its end, and gone before and after."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._previous: Any = None
        self.watching = False
        self.ended = False

    def watch(self) -> None:
        """Put the hooks in place."""
        self.ended = False
        if self.watching:
            return
        self.watching = True
        self._previous = sys.excepthook
        sys.excepthook = self._uncaught
        atexit.register(self._session.close)
        notebook = shell()
        if notebook is not None:
            notebook.events.register("post_run_cell", self._cell_done)

    def release(self) -> None:
        """Take the hooks away."""
        self.ended = True
        if not self.watching:
            return
        self.watching = False
        if sys.excepthook == self._uncaught:  # somebody else's hook, put on top of ours, stays
            sys.excepthook = self._previous
        atexit.unregister(self._session.close)
        notebook = shell()
        if notebook is not None:
            notebook.events.unregister("post_run_cell", self._cell_done)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self.watching:
            self._session.crashed(error)
        self._previous(kind, error, trace)

    def _cell_done(self, result: Any) -> None:
        error = result.error_in_exec or result.error_before_exec
        if error is not None and not isinstance(error, KeyboardInterrupt):
            self._session.crashed(error)
