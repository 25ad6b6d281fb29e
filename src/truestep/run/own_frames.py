# SPDX-License-Identifier: Apache-2.0
"""What Python prints of an exception that a user's code raised inside of a call of ours: without our frames."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from types import TracebackType

from truestep.core.frames import is_library_file, is_truestep_file
from truestep.doctor.runtime.tracebacks import frames_unwatched, joined_frames

FULL_TRACEBACK = "TRUESTEP_FULL_TRACEBACK"
HIDDEN = f"truestep: frames of Truestep are left out below; {FULL_TRACEBACK}=1 shows them."


@contextmanager
def without_our_frames(error: BaseException | None) -> Iterator[bool]:
    """Let the exception's tracebacks, and those of what it came from, lack our frames; afterwards they are what they were.

    Yields whether any was left out: none where the exception is raised by ourselves, or TRUESTEP_FULL_TRACEBACK is set.
    """
    whole = {each: each.__traceback__ for each in _with_causes(error)}
    try:
        if os.environ.get(FULL_TRACEBACK, "0") in ("", "0"):
            for each, trail in whole.items():
                each.__traceback__ = _shortened(trail)
        yield any(each.__traceback__ is not trail for each, trail in whole.items())
    finally:
        for each, trail in whole.items():
            each.__traceback__ = trail


def _with_causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and all(each is not other for other in found):
            found.append(each)
            waiting += [each.__cause__, each.__context__]
    return found


def _shortened(trail: TracebackType | None) -> TracebackType | None:
    """Return a trail without our frames, where code of the user's stands behind them; else the trail itself.

    What we raise ourselves, called by that code, keeps the frames that lead there.
    """
    frames = frames_unwatched(trail)
    of_user = [not is_library_file(_file(each)) for each in frames]
    ours = [is_truestep_file(_file(each)) for each in frames]
    if not any(ours) or not any(of_user[ours.index(True) :]):
        return trail
    kept: list[TracebackType] = []
    for is_user, found in groupby(frames, key=lambda each: not is_library_file(_file(each))):
        group = [*found]
        is_raised_here = group[-1] is frames[-1] and is_truestep_file(_file(group[-1]))
        kept += group if is_user or is_raised_here else _behind_ours(group)
    return joined_frames(kept)


def _behind_ours(frames: list[TracebackType]) -> list[TracebackType]:
    """Return the frames of libraries that come behind the last of ours: those between are how we got there."""
    last = max((place for place, each in enumerate(frames) if is_truestep_file(_file(each))), default=-1)
    return frames[last + 1 :]


def _file(trail: TracebackType) -> str:
    return trail.tb_frame.f_code.co_filename
