# SPDX-License-Identifier: Apache-2.0
"""Shows what a watched script raised as Python would have done without a watch."""

import sys
from pathlib import Path
from types import TracebackType

_RUNTIME = str(Path(__file__).parent)  # what runs the script, and the wrapped calls


def own_part(trail: TracebackType | None) -> TracebackType | None:
    """Leave out the frames that are ours, at the top of the trail."""
    while trail is not None and (
        trail.tb_frame.f_code.co_filename.startswith((_RUNTIME, "<frozen runpy>"))
        or "runpy" in trail.tb_frame.f_code.co_filename
    ):
        trail = trail.tb_next
    return trail


def show(error: BaseException) -> None:
    """Print the traceback as Python would have done without us."""
    _leave_ours_out(error, set())
    own = own_part(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(own), own)


def _leave_ours_out(error: BaseException | None, seen: set[int]) -> None:
    """Leave our wrappers out of the trail of an error and of those it came from."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    frames = []
    trail = error.__traceback__
    while trail is not None:
        frames.append(trail)
        trail = trail.tb_next
    kept: TracebackType | None = None
    for each in reversed(frames):
        if not each.tb_frame.f_code.co_filename.startswith(_RUNTIME):
            kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    error.__traceback__ = kept
    for other in (error.__cause__, error.__context__):
        _leave_ours_out(other, seen)
