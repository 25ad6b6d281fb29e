# SPDX-License-Identifier: Apache-2.0
"""Where the values of a failing line come from: their line, in whichever of the user's functions, and their data set."""

import ast
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from truestep.core.frames import is_library_file
from truestep.explainer.calls import line_that_made_within
from truestep.explainer.crash import Crash, CrashFrame
from truestep.explainer.source import (
    EvidenceLine,
    crashed_file_name,
    crashed_file_nodes,
    crashed_line_without_strings,
    line_that_made,
)
from truestep.explainer.values import attribute_at_crash, is_layer_at_crash


def line_of_origin(crash: Crash, name: str, value: Any) -> EvidenceLine | None:
    """Return the line that made a value: followed by identity from function to function, through library code too."""
    if not crash.is_live:
        return crash.made(name)
    users = [frame for frame in reversed(crash.frames) if frame.is_users and frame.live is not None]
    found = line_that_made(users[0].path, name, users[0].line) if users else None
    if found is not None:
        return line_that_made_within(users[0], found, name) or found
    # `self.x` is another object's in another function, so only plain names are followed outwards.
    for frame in users[1:] if "." not in name else ():
        for known, each in frame.locals().items():
            line = line_that_made(frame.path, known, frame.line) if each is value else None
            if line is not None and not known.startswith("__"):
                found = line_that_made_within(frame, line, known) or line
    return found


def data_set_behind(crash: Crash, line: EvidenceLine | None) -> str:
    """Return " (from CLASS.__getitem__, FILE:LINE)" where a line loops over a loader."""
    frames = (each for each in crash.frames if line is not None and each.path == line.path and each.live)
    frame = next(frames, None)
    values = _looped_over(frame, line) if frame is not None and line is not None else ()
    return next((f" (from {shown})" for value in values if (shown := _getter(value))), "")


def data_set_being_read(crash: Crash) -> str:
    """Return " of CLASS.__getitem__, FILE:LINE" for the data set that is being read."""
    readers = (frame.locals().get("self") for frame in crash.frames)
    return next((f" ({shown})" for reader in readers if (shown := _getter(reader))), "")


def _getter(loader: Any) -> str:
    """Name the user's __getitem__ behind a loader, a data set, or the class of one."""
    found, data_set = attribute_at_crash(loader, "dataset")
    kind = type(data_set) if found else loader if isinstance(loader, type) else type(loader)
    code = getattr(getattr(kind, "__getitem__", None), "__code__", None)
    if code is None or is_library_file(code.co_filename):
        return ""
    file = crashed_file_name(code.co_filename)
    return f"{kind.__name__}.__getitem__, {file}:{code.co_firstlineno}"


def _looped_over(frame: CrashFrame, line: EvidenceLine) -> Iterator[Any]:
    """Yield the values that the `for` at a line names after `in`."""
    loops = [(node, node.iter) for node in crashed_file_nodes(line.path, ast.For)]
    givings = [(node, node.value) for node in crashed_file_nodes(line.path, ast.Assign)]
    for node, looped in (*loops, *givings):
        for name in ast.walk(looped) if node.lineno == line.number else ():
            if isinstance(name, ast.Name) and (value := frame.lookup(name.id)) is not None:
                yield value


def files_of_models(crash: Crash) -> list[str]:
    """Return the files that hold the user's own classes of the models on the stack."""
    found: dict[str, None] = {}
    for _, _, value in crash.users_locals():
        if is_layer_at_crash(value):
            for each in value.modules():
                module = sys.modules.get(type(each).__module__)
                path = getattr(module, "__file__", None)
                if path and not type(each).__module__.startswith(("torch.", "torchvision.")):
                    found[path] = None
    running = {frame.path for frame in crash.frames if frame.is_users}
    return [path for path in found if CrashFrame(path, 0, "").is_users or path in running]


def line_as_evidence(path: str, number: int) -> str:
    """Return FILE:LINE (TEXT)."""
    name = crashed_file_name(path)
    return f"{name}:{number} ({crashed_line_without_strings(path, number)})"


def definition_as_evidence(function: Any) -> str:
    """Return ", defined at FILE:LINE" for a function or class of the user's own."""
    try:
        path, number = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return ""
    if not path or not CrashFrame(path, 0, "").is_users:
        return ""
    return f", defined at {crashed_file_name(path)}:{number}"
