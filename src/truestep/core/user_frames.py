# SPDX-License-Identifier: Apache-2.0
"""Where in the user's own code something happens."""

import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import CodeType, FrameType, TracebackType

_PACKAGE = f"{Path(__file__).parents[1]}/"
_MADE_BY_PROGRAMS = ("<frozen", "<__array_function__", "<eval_with_key>")
_known: dict[str, bool] = {}  # hooks ask for the same few files at every call


@cache
def library_folders() -> tuple[str, ...]:
    """Return where Python and installed packages lie, each with the slash at its end."""
    import sysconfig  # only when asked: reading needs it not, and has none in a browser

    return tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_library_file(filename: str) -> bool:
    """Whether a file belongs to Python, an installed package or Truestep; all others are the user's."""
    found = _known.get(filename)
    if found is None:
        # "<eval_with_key>" is code that torch.fx wrote, and "/torchinductor_" what torch.compile did.
        inside = filename.startswith((*library_folders(), _PACKAGE, *_MADE_BY_PROGRAMS))
        inside = inside or "/torchinductor_" in filename
        _known[filename] = found = inside or "site-packages" in filename or "dist-packages" in filename
    return found


def innermost_user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's own code, from one outward."""
    known = _known.get  # a watch asks for some twenty frames at every operation
    while frame is not None and (
        known(frame.f_code.co_filename) or is_library_file(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return frame


def is_truestep_file(filename: str) -> bool:
    """Whether a file is one of this package."""
    return filename.startswith(_PACKAGE)


def line_of_user_code(trace: TracebackType | None = None) -> str | None:
    """Return the innermost line of the user's own code as "file:line": of a traceback, or of the stack that is running."""
    lines = walk_stack(sys._getframe(1)) if trace is None else reversed([*walk_tb(trace)])
    found = ((frame.f_code.co_filename, line) for frame, line in lines)
    return next((f"{path}:{line}" for path, line in found if not is_library_file(path)), None)


def running_user_frames() -> list[FrameType]:
    """Return the frames of the user's own code that run now, innermost first."""
    return [
        frame for frame, _ in walk_stack(sys._getframe(1)) if not is_library_file(frame.f_code.co_filename)
    ]


def running_user_lines() -> list[tuple[CodeType, int]]:
    """Return the code of the user's that runs now, with its lines, innermost first."""
    lines = walk_stack(sys._getframe(1))
    return [(frame.f_code, line) for frame, line in lines if not is_library_file(frame.f_code.co_filename)]


def warn_user(message: str) -> None:
    """Warn at the user's own line, however many calls of this package and of torch lie between; else at the first line outside."""
    depths = list(_files_of_callers())
    outside = next((depth for depth, path in depths if not is_truestep_file(path)), 2)
    of_user = next((depth for depth, path in depths if not is_library_file(path)), outside)
    warnings.warn(message, stacklevel=of_user)


def _files_of_callers() -> Iterator[tuple[int, str]]:
    """Yield the files of the running frames with the `stacklevel` that names each for `warn`, innermost first.

    The frames of python's import machinery have none: `warnings` does not count them either.
    """
    paths = (frame.f_code.co_filename for frame, _ in walk_stack(sys._getframe(2)))
    # 1 is `warn` itself
    yield from enumerate((path for path in paths if "importlib" not in path or "_bootstrap" not in path), 2)
