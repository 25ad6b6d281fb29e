# SPDX-License-Identifier: Apache-2.0
"""Being asked to stop: the first signal is a wish that the loop grants between two batches, the second is an order."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from truestep.core.os_specific import STOPPING_SIGNALS

_listening: "list[StopSignalListener]" = []
"""Those of all runs that are at work; the one whose loop began last is told first."""
_replaced: dict[int, Any] = {}
"""Who had the signals before any of them."""


class StopSignalListener:
    """Listens while a loop runs; `requested` is the signal that came, None while none did."""

    def __init__(self, statuses: Mapping[int, int] | None = None) -> None:
        self._statuses = STOPPING_SIGNALS | dict(statuses or {})
        self.requested: int | None = None
        self.requested_at: float | None = None
        """The moment of `time.monotonic` when it came; another rank's is taken up later."""
        self.insisted = False
        """Whether another one came, which broke into whatever ran; code there may have caught what that raised, and gone on."""
        self.process = os.getpid()

    def listen(self) -> None:
        """Take the signals over; only a main thread can."""
        if threading.current_thread() is not threading.main_thread() or self in _listening:
            return
        self.clear_request()
        self.requested_at, self.process = None, os.getpid()
        _listening.append(self)
        for number in self._statuses:
            previous = signal.getsignal(number)
            # None: set by C code, not ours to replace
            if number not in _replaced and previous is not None and previous is not signal.SIG_IGN:
                _replaced[number] = previous
                signal.signal(number, _handle_signal)

    def clear_request(self) -> None:
        """What was asked for is done, or nothing was."""
        self.requested, self.insisted = None, False

    def release(self) -> None:
        """Give the signals back to whoever had them; only the main thread can: until then, what comes is passed on."""
        if self in _listening:
            _listening.remove(self)
        _restore_unused_handlers()

    def wants(self, number: int) -> bool:
        """Whether a signal is one that the run is stopped by."""
        return number in self._statuses

    @property
    def exit_status(self) -> int:
        """The status to exit with after the signal that came."""
        assert self.requested is not None
        return self._statuses[self.requested]

    def shutdown_deadline(self, grace_seconds: float) -> float | None:
        """Return the moment until which whoever asked waits for the process to end; None where nobody asked."""
        if self.requested is None:
            return None
        return (self.requested_at or time.monotonic()) + grace_seconds


def _restore_unused_handlers() -> None:
    """Give back the signals that no run waits for any more."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number, previous in [*_replaced.items()]:
        if not any(each.wants(number) for each in _listening):
            del _replaced[number]
            if signal.getsignal(number) is _handle_signal:  # somebody else's, set since, stays
                signal.signal(number, previous)


def _handle_signal(number: int, _frame: FrameType | None) -> None:
    # What was forked by C code has given nothing back, and no loop there would look.
    _listening[:] = [each for each in _listening if each.process == os.getpid()]
    told = [each for each in _listening if each.wants(number)]
    if told and told[-1].requested is None:
        told[-1].requested, told[-1].requested_at = number, time.monotonic()
        return
    # The second time it is an order: nobody is asked any more, and it goes where it would have gone without us.
    for each in told:
        each.insisted = True
    if told:
        _listening.clear()
    _restore_unused_handlers()
    if told and number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.raise_signal(number)
