# SPDX-License-Identifier: Apache-2.0
"""Noticing how a loop ends when nobody tells: by an exception nobody caught, by the end of the process, of a cell."""

import atexit
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from truestep.run.notebook import shell

if TYPE_CHECKING:
    from truestep.run.session import Session


class Endings:
    """Hooks that are in place from a loop's start to its end, and gone before and after, and in every forked process."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._previous: Any = None
        self._previous_of_threads: Any = None
        self.watching = False
        self.ended = False

    def watch(self) -> None:
        """Put the hooks in place."""
        self.ended = False
        if self.watching:
            return
        self.watching = True
        self._previous, self._previous_of_threads = sys.excepthook, threading.excepthook
        sys.excepthook, threading.excepthook = self._uncaught, self._uncaught_in_thread
        atexit.register(self._process_ends)
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
        if threading.excepthook == self._uncaught_in_thread:
            threading.excepthook = self._previous_of_threads
        atexit.unregister(self._process_ends)
        notebook = shell()
        if notebook is not None:
            notebook.events.unregister("post_run_cell", self._cell_done)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # torch's threads and workers call this hook for errors of their own, while the run goes on
        if self.watching and self._session.owner.is_here:
            self._session.crashed(error)
        self._previous(kind, error, trace)

    def _uncaught_in_thread(self, arguments: threading.ExceptHookArgs) -> None:
        owner = self._session.owner
        if self.watching and owner.is_this_process and arguments.thread is owner.thread:
            assert arguments.exc_value is not None
            self._session.crashed(arguments.exc_value)
        self._previous_of_threads(arguments)

    def _process_ends(self) -> None:
        if self.watching and self._session.owner.is_this_process:
            self._session.process_ends()

    def _cell_done(self, result: Any) -> None:
        error = result.error_in_exec or result.error_before_exec
        if error is None or not self._session.owner.is_here:
            return
        if isinstance(error, KeyboardInterrupt):
            self._session.interrupted()  # and the next cell may go on
        else:
            self._session.crashed(error)
