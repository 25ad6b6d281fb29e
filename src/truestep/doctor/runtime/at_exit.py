# SPDX-License-Identifier: Apache-2.0
"""Sees to it that a report is given however a process ends, short of being killed outright."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from truestep.core.os_specific import call_in_forked_children

_active: list["WatchReportAtExit"] = []


class WatchReportAtExit(contextlib.ContextDecorator):
    """Within this, `os._exit` and a SIGTERM that nobody handles let `speak` speak first; the status stays.

    One that begins within another one takes its place.

    Args:
        speak: gives the report; takes the status with which the process ends and returns the one to end with.
    """

    def __init__(self, speak: Callable[[int], int]) -> None:
        self._speak = speak
        self._process = 0
        self._exit = os._exit
        self._has_signal = False

    def __enter__(self) -> Self:
        if _active:
            _active[-1].__exit__()
        self._process, self._exit = os.getpid(), os._exit
        os._exit = self._exit_after_report
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle_sigterm)
            self._has_signal = True
        _active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if os._exit == self._exit_after_report:
            os._exit = self._exit
        self._release_signal()
        if self in _active:
            _active.remove(self)

    def _release_signal(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()  # elsewhere Python sets no handlers
        if in_main and self._has_signal and signal.getsignal(signal.SIGTERM) == self._handle_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _exit_after_report(self, status: int) -> Any:
        if os.getpid() == self._process:
            self.__exit__()
            status = self._speak(status)
        self._exit(status)

    def _handle_sigterm(self, number: int, _frame: FrameType | None) -> None:
        if signal.getsignal(number) != self._handle_sigterm:
            return  # a handler of the script's calls it as the one before it: unwatched, it would have found none
        self.__exit__()
        self._speak(128 + number)
        os.kill(os.getpid(), number)

    def forget(self) -> None:
        """In a forked child, nothing is left to be said."""
        os._exit = self._exit
        self._release_signal()


def _forget_reports_after_fork() -> None:
    while _active:
        _active.pop().forget()


call_in_forked_children(_forget_reports_after_fork)
