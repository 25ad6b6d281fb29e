# SPDX-License-Identifier: Apache-2.0
"""Where a user's code calls, and which variable takes what it gets: names that the user knows, for messages."""

import dis
import sys
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import NamedTuple

from truestep.core.frames import is_library_file


class UserCallSite(NamedTuple):
    """A line of the user's own code, and the variable that takes what is called there; None where none does."""

    place: str
    variable: str | None


def user_call_site() -> UserCallSite | None:
    """Return where the innermost running line of the user's own code calls; None where there is none."""
    for frame, line in walk_stack(sys._getframe(1)):
        if not is_library_file(path := frame.f_code.co_filename):
            return UserCallSite(f"{Path(path).name}:{line}", _variable(frame))
    return None


def _variable(frame: FrameType) -> str | None:
    """Return what the instruction behind the running call stores into; the name alone of an attribute."""
    following = (each for each in dis.get_instructions(frame.f_code) if each.offset > frame.f_lasti)
    first, second = next(following, None), next(following, None)
    if first and second and first.opname.startswith("LOAD_") and second.opname == "STORE_ATTR":
        first = second
    if first is None or not first.opname.startswith("STORE_") or first.opname == "STORE_SUBSCR":
        return None
    # two in one, from Python 3.13 on
    name = first.argval[0] if isinstance(first.argval, tuple) else first.argval
    return name if isinstance(name, str) else None
