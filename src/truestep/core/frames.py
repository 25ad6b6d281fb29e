# SPDX-License-Identifier: Apache-2.0
"""Where in the user's own code something happens."""

import sys
import sysconfig
from pathlib import Path
from types import FrameType, TracebackType

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_own(path: str) -> bool:
    """Whether a file is the user's: none of Python's, of an installed package, or of this one."""
    return not path.startswith((_PACKAGE, "<frozen", *_LIBRARIES)) and "site-packages" not in path


def own_line(trace: TracebackType | None = None) -> str | None:
    """Return the innermost line of the user's own code as "file:line": of a traceback, or of the stack that is running."""
    found: tuple[str, int] | None = None
    if trace is not None:
        while trace is not None:
            if is_own(path := trace.tb_frame.f_code.co_filename):
                found = path, trace.tb_lineno
            trace = trace.tb_next
    else:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not is_own(frame.f_code.co_filename):
            frame = frame.f_back
        found = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else None
    return None if found is None else f"{found[0]}:{found[1]}"
