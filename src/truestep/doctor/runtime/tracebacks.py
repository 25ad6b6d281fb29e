# SPDX-License-Identifier: Apache-2.0
"""Shows what a watched script raised as Python would have done without a watch."""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from torch import overrides

from truestep import instrument
from truestep.doctor.runtime import operations

_RUNTIME = str(Path(__file__).parent)  # what runs the script, and stands around calls
_OURS = (_RUNTIME, str(Path(instrument.__file__).parent))
_MODE = operations.__file__
_OVERRIDES = overrides.__file__


def script_part_of_traceback(trail: TracebackType | None) -> TracebackType | None:
    """Leave out the frames that are ours, at the top of the trail."""
    while trail is not None and (
        trail.tb_frame.f_code.co_filename.startswith((*_OURS, "<frozen runpy>"))
        or "runpy" in trail.tb_frame.f_code.co_filename
    ):
        trail = trail.tb_next
    return trail


def show_script_traceback(error: BaseException) -> None:
    """Print the traceback as Python would have done without us."""
    _strip_watch_frames(error, set())
    own = script_part_of_traceback(error.__traceback__)
    shows = sys.excepthook
    if shows is sys.__excepthook__ and sys.stderr is not None:
        shows = traceback.print_exception  # which finds the lines of a notebook's cells, too
    shows(type(error), error.with_traceback(own), own)


def _strip_watch_frames(error: BaseException | None, seen: set[int]) -> None:
    """Leave our wrappers out of the trail of an error and of those it came from."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    error.__traceback__ = traceback_of_frames(frames_without_watch(error.__traceback__))
    for other in (error.__cause__, error.__context__):
        _strip_watch_frames(other, seen)


def traceback_of_frames(frames: Sequence[TracebackType]) -> TracebackType | None:
    """Return a new trail of these frames, the outermost first."""
    joined: TracebackType | None = None
    for each in reversed(frames):
        joined = TracebackType(joined, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return joined


def frames_without_watch(trail: TracebackType | None) -> list[TracebackType]:
    """Return the frames that are not a watch's, without those by which torch came to the mode that follows operations."""
    frames: list[TracebackType] = []
    while trail is not None:
        file = trail.tb_frame.f_code.co_filename
        if not file.startswith(_OURS):
            frames.append(trail)
        elif file == _MODE and frames and frames[-1].tb_frame.f_code.co_filename == _OVERRIDES:
            del frames[-2:]  # the function's first try, and the hand-over
        trail = trail.tb_next
    return frames
