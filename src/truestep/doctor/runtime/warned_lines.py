# SPDX-License-Identifier: Apache-2.0
"""Warnings that torch raises beneath the watch's own frames are shown at the user's line, under the user's filters.

Nothing is done before a warning is shown, so that calls that warn of nothing cost nothing.
"""

import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from truestep.core.frames import is_library_file, is_truestep_file


def warn_at_script_lines() -> Callable[[], None]:
    """From now on show what is warned of at a line of this package at the user's; return what ends it."""
    before, on = warnings.showwarning, True

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *where: Any, **named: Any
    ) -> None:
        user = _users_frame() if on and is_truestep_file(filename) else None
        if user is None:
            before(message, category, filename, lineno, *where, **named)
        else:
            _forget(message, category, filename, lineno)
            _warn_at(user, message, category)

    def end() -> None:
        nonlocal on
        on = False  # where somebody has put his own on top of it, it stays, and hands on
        if warnings.showwarning is show:
            warnings.showwarning = before

    warnings.showwarning = show
    return end


def _users_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _forget(message: Warning | str, category: type[Warning], filename: str, lineno: int) -> None:
    """Let the same warning be shown again: at another line of the user's it would have been."""
    text = str(message)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    seen: dict[Any, Any] = frame.f_globals.get("__warningregistry__", {}) if frame is not None else {}
    for line in (lineno, 0):  # of each line, and of each module
        seen.pop((text, category, line), None)
    warnings.onceregistry.pop((text, category), None)  # type: ignore[attr-defined]


def _warn_at(user: FrameType, message: Warning | str, category: type[Warning]) -> None:
    names = user.f_globals
    warnings.warn_explicit(
        message,
        category,
        user.f_code.co_filename,
        user.f_lineno,
        module=names.get("__name__"),
        registry=names.setdefault("__warningregistry__", {}),
    )
