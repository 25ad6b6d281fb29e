# SPDX-License-Identifier: Apache-2.0
"""Errors out of this package's own code: those it raises say what to write, and what breaks in it is no line of the user's."""

from truestep.core.call_site import ends_in_raise
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
    return isinstance(error, _ANSWERED) and own_frame(crash) is not None and ends_in_raise(error)


def own_code_mistake(crash: Crash, error: BaseException) -> Explanation | None:
    """Return what is said of a slip in this package; None where it is none."""
    frame = own_frame(crash)
    if frame is None or not isinstance(error, _SLIPS) or ends_in_raise(error):
        return None
    return Explanation(
        name="mistake-of-truestep",
        error=crash.title,
        means="Truestep's own code failed here, most likely by a mistake of Truestep's and none of yours.",
        here=None,
        at=f"{frame.place} in {frame.function}: {frame.text}".strip(": "),
        values=(),
        check=None,
        fix="report it with this traceback, what `truestep env` prints, and the lines of your script that lead to it.",
        not_told=None,
    )
