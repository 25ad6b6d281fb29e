# SPDX-License-Identifier: Apache-2.0
"""Ctrl+C and SIGTERM while a command is still being imported: one line and the status that a shell expects, no traceback."""

import os
import signal
from types import FrameType
from typing import Any

_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


def end_plainly_until_loaded() -> None:
    """Take both signals over until `give_signals_back`; one that is ignored, or somebody else's, stays as it is."""
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is default:
            signal.signal(number, _end)


def give_signals_back() -> None:
    """The command is loaded: from here on a signal does what the command, or Python, makes of it."""
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is _end:
            signal.signal(number, default)


def _end(number: int, _frame: FrameType | None) -> None:
    name = "Ctrl+C" if number == signal.SIGINT else "SIGTERM"
    os.write(2, f"truestep: ended by {name} before the command had begun; nothing was done\n".encode())
    os._exit(128 + number)  # an exception would be lost, or shown, where a half-imported module catches it
