# SPDX-License-Identifier: Apache-2.0
"""Warnings that are raised beneath the watch's own frames are shown at the line of a plain run, under its filters.

That is a line of the user's or of torch's: a warning names the frame so many calls out, and the watch's are not counted.

Nothing is done before a warning is shown, so that calls that warn of nothing cost nothing.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Any

from torch.nn import Module
from torch.overrides import handle_torch_function

from truestep.core.user_frames import is_truestep_file

_PACKAGE = Path(__file__).parents[2]
_HOOKED = [each for each in Module._call_impl.__code__.co_consts if isinstance(each, CodeType)]
_OF_WATCH = (f"{_PACKAGE / 'doctor'}/", f"{_PACKAGE / 'instrument'}/")


def warn_at_plain_lines() -> Callable[[], None]:
    """From now on show what is warned of beneath the watch's frames where it would be without them; return what ends it."""
    before, on = warnings.showwarning, True

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *where: Any, **named: Any
    ) -> None:
        plain = _plain_frame(filename, lineno) if on else None
        if plain is None:
            before(message, category, filename, lineno, *where, **named)
        else:
            _forget_warning(message, category, filename, lineno)
            _warn_at(plain, message, category)

    def restore_showwarning() -> None:
        nonlocal on
        on = False  # where somebody has put his own on top of it, it stays, and hands on
        if warnings.showwarning is show:
            warnings.showwarning = before

    warnings.showwarning = show
    return restore_showwarning


def _plain_frame(filename: str, lineno: int) -> FrameType | None:
    """Return the frame that a warning would name without the watch's; None where it names it already."""
    frames = [
        frame for frame, _ in walk_stack(sys._getframe(2)) if frame.f_code.co_filename != warnings.__file__
    ]
    places = [(frame.f_code.co_filename, frame.f_lineno) for frame in frames]
    level = places.index((filename, lineno)) if (filename, lineno) in places else -1
    is_counted = level == 0 or (level > 0 and not is_truestep_file(places[0][0]))  # ours name whom they mean
    plain = list(_without_frames_of_watch(frames))
    if not is_counted or level >= len(plain) or plain[: level + 1] == frames[: level + 1]:
        return None
    return plain[level]


def _without_frames_of_watch(frames: list[FrameType]) -> Iterator[FrameType]:
    """Leave out the watch's frames, and the calls of torch's functions by which these came to it before they were computed."""
    outward = iter(frames)
    is_behind = False
    for frame in outward:
        if frame.f_code.co_filename.startswith(_OF_WATCH):
            is_behind = True
        elif is_behind and frame.f_code is handle_torch_function.__code__:
            next(outward, None)
        elif frame.f_code in _HOOKED and not _has_own_hooks(frame.f_locals.get("self")):
            continue  # torch calls a layer without hooks at once, and these are the watch's
        else:
            is_behind = False
            yield frame


def _has_own_hooks(layer: Any) -> bool:
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return any(getattr(layer, kind, None) for kind in kinds)


def _forget_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int) -> None:
    """Let the same warning be shown again: at another line it would have been."""
    text = str(message)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    seen: dict[Any, Any] = frame.f_globals.get("__warningregistry__", {}) if frame is not None else {}
    for line in (lineno, 0):  # of each line, and of each module
        seen.pop((text, category, line), None)
    warnings.onceregistry.pop((text, category), None)  # type: ignore[attr-defined]


def _warn_at(plain: FrameType, message: Warning | str, category: type[Warning]) -> None:
    names = plain.f_globals
    warnings.warn_explicit(
        message,
        category,
        plain.f_code.co_filename,
        plain.f_lineno,
        module=names.get("__name__"),
        registry=names.setdefault("__warningregistry__", {}),
    )
