# SPDX-License-Identifier: Apache-2.0
"""The death of a worker is told where its batch is waited for, and nowhere else.

torch's handler for SIGCHLD raises in whatever line the training process is at: between the moments of an optimizer and its weights,
or in a line of metrics half written. Here it is asked only while a batch is waited for; a death before that is found then.
"""

import signal
import threading
from types import FrameType
from typing import Any

import torch

from truestep.core.system import WORKER_ENDED


class _RaisedDeaths(threading.local):
    """Within this block a worker's death is raised at once, as torch's RuntimeError, also one that came before."""

    is_on = False

    def __enter__(self) -> None:
        self.is_on = True
        try:
            torch._C._error_if_any_worker_fails()
        except BaseException:
            self.is_on = False
            raise

    def __exit__(self, *_: object) -> None:
        self.is_on = False


worker_deaths_raised = _RaisedDeaths()
_of_torch: Any = None


def defer_worker_deaths() -> None:
    """Take torch's handler over, once it is in place; only a main thread can."""
    global _of_torch
    if WORKER_ENDED is None:  # there torch asks the workers themselves
        return
    current = signal.getsignal(WORKER_ENDED)
    if (
        current is _handle
        or not callable(current)
        or threading.current_thread() is not threading.main_thread()
    ):
        return
    _of_torch = current
    signal.signal(WORKER_ENDED, _handle)


def _handle(number: int, frame: FrameType | None) -> None:
    if worker_deaths_raised.is_on:
        _of_torch(number, frame)
