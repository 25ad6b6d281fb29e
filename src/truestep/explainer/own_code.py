# SPDX-License-Identifier: Apache-2.0
"""Errors out of this package's own code: those it raises say what to write, and what breaks in it is no line of the user's."""

import dis

from truestep.core.frames import is_truestep_file
from truestep.explainer.crash import Crash, CrashFrame
from truestep.explainer.explanation import Explanation

# What a slip in our code raises; others, of shapes and types say, may well be about the values that the user gave.
_SLIPS = (AttributeError, NameError, AssertionError)
_ANSWERED = (AttributeError, ImportError)


def own_frame(crash: Crash) -> CrashFrame | None:
    """Return the innermost frame where it is one of this package; None where the error comes out of other code."""
    last = crash.frames[-1] if crash.frames else None
    return last if last is not None and last.live is not None and is_truestep_file(last.path) else None


def is_answered_by_message(crash: Crash, error: BaseException) -> bool:
    """Whether this package raised it for a name that it does not have: its message is the answer."""
    return isinstance(error, _ANSWERED) and own_frame(crash) is not None and _is_raised(error)


def own_code_fault(crash: Crash, error: BaseException) -> Explanation | None:
    """Return what is said of a slip in this package; None where it is none."""
    frame = own_frame(crash)
    if frame is None or not isinstance(error, _SLIPS) or _is_raised(error):
        return None
    return Explanation(
        name="fault-of-truestep",
        error=crash.title,
        means="Truestep's own code failed here, most likely by a fault of Truestep and none of yours.",
        here=None,
        at=f"{frame.place} in {frame.function}: {frame.text}".strip(": "),
        values=(),
        check=None,
        fix="report it with this traceback, what `truestep env` prints, and the lines of your script that lead to it.",
        not_told=None,
    )


def _is_raised(error: BaseException) -> bool:
    """Whether its innermost line is a `raise`."""
    trail = error.__traceback__
    while trail is not None and trail.tb_next is not None:
        trail = trail.tb_next
    if trail is None or trail.tb_lasti < 0:
        return False
    return dis.opname[trail.tb_frame.f_code.co_code[trail.tb_lasti]] == "RAISE_VARARGS"
