# SPDX-License-Identifier: Apache-2.0
"""Being asked to stop: the first signal is a wish that the loop grants between two batches, the second is an order."""

import os
import signal
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any

EXIT_STATUS: dict[int, int] = {
    signal.SIGINT: 130,
    signal.SIGTERM: 143,
    signal.SIGUSR1: 138,
    signal.SIGHUP: 129,  # the terminal was closed
}


class StopSignals:
    """Listens while a loop runs; `requested` is the signal that came, None while none did."""

    def __init__(self, statuses: Mapping[int, int] | None = None) -> None:
        self._statuses = EXIT_STATUS | dict(statuses or {})
        self._previous: dict[int, Any] = {}
        self.requested: int | None = None
        self._listening = False
        self._process = os.getpid()

    def listen(self) -> None:
        """Take the signals over; only a main thread can."""
        if threading.current_thread() is not threading.main_thread() or self._listening:
            return
        self.release()
        self.requested, self._listening = None, True
        self._process = os.getpid()
        for number in self._statuses:
            previous = signal.getsignal(number)
            if (
                previous is not None and previous is not signal.SIG_IGN
            ):  # None: set by C code, not ours to replace
                self._previous[number] = previous
                signal.signal(number, self._handle)

    def release(self) -> None:
        """Give the signals back to whoever had them; only the main thread can: until then, what comes is passed on."""
        self._listening = False
        if threading.current_thread() is not threading.main_thread():
            return
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        self._previous = {}

    @property
    def exit_status(self) -> int:
        """The status to exit with after the signal that came."""
        assert self.requested is not None
        return self._statuses[self.requested]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process or not self._listening:
            # forked by C code, so that nothing was given back there, or closed in another thread: no loop would look
            self.release()
            signal.raise_signal(number)
            return
        if self.requested is None:
            self.requested = number
            return
        self.release()
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.raise_signal(number)
