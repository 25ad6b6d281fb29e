# SPDX-License-Identifier: Apache-2.0
"""The loops of the user's that run now, as far as they are of one run: those in which the run itself was made are not."""

import sys
from collections.abc import Iterator
from types import FrameType

from truestep.core.source_lookup import Loop, enclosing_loops
from truestep.core.user_frames import innermost_user_frame
from truestep.run.state import RunState


def running_loops(run: RunState) -> Iterator[tuple[FrameType, list[Loop]]]:
    """Yield the functions of the user's that run now, innermost first, each with its loops of the run."""
    frame = innermost_user_frame(sys._getframe(1))
    while frame is not None:
        if loops := loops_of_run(run, frame):
            yield frame, loops
        frame = innermost_user_frame(frame.f_back)


def loops_of_run(run: RunState, frame: FrameType) -> list[Loop]:
    """Return the loops around what runs of a function, outermost first, in which the run was not made."""
    made_at = [line for code, line in run.made_at if code is frame.f_code]
    return [
        each
        for each in enclosing_loops(frame)
        if not any(each.lineno <= line <= (each.end_lineno or 0) for line in made_at)
    ]
