# SPDX-License-Identifier: Apache-2.0
"""Finds the line of the user's own code that a call comes from."""

import sys
from pathlib import Path
from types import FrameType

from truestep.core.user_frames import innermost_user_frame
from truestep.doctor.finding import Place


def path_in_finding(path: str) -> str:
    """Return a file's name as a message shows it: from the current folder, or alone where it lies elsewhere."""
    whole = Path(path)
    try:
        here = Path.cwd()
    except OSError:  # the script removed it
        return whole.name
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else whole.name


def watched_user_line(depth: int = 2) -> tuple[str, int]:
    """Return file and number of the innermost line of the user's code on the stack, or of the outermost there is."""
    innermost = sys._getframe(depth)
    found = innermost_user_frame(innermost) or _outermost_frame(innermost)
    return found.f_code.co_filename, found.f_lineno


def _outermost_frame(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def names_of_user_frame(depth: int = 2) -> frozenset[str]:
    """Return the names, attributes among them, that the innermost function of the user's on the stack uses."""
    frame = innermost_user_frame(sys._getframe(depth))
    return frozenset(frame.f_code.co_names if frame is not None else ())


def watched_user_place(depth: int = 2) -> Place:
    """Return the innermost line of the user's code on the stack, or the outermost line there is."""
    return Place(*watched_user_line(depth + 1))


def watched_user_name(wanted: object, depth: int = 2) -> str | None:
    """Return the name by which the user's code knows an object: a variable's, or an attribute's as `self.net`."""
    frame = innermost_user_frame(sys._getframe(depth))
    while frame is not None:
        for name, value in frame.f_locals.items():
            if value is wanted and not name.startswith("_") and name != "self":
                return name
        owner = frame.f_locals.get("self")
        kept = getattr(owner, "__dict__", {})
        for name, value in (kept | kept.get("_modules", {})).items():
            if value is wanted:
                return f"self.{name}"
        frame = innermost_user_frame(frame.f_back)
    return None
