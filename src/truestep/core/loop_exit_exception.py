# SPDX-License-Identifier: Apache-2.0
"""The exception that leaves a loop at this moment, and the status that a script exits with by it.

A generator that its loop drops is closed in the same way whatever happened: Python keeps an exception that is on its way aside.
Its traceback refers to the frame that it leaves, and is found by that.
"""

import ast
import builtins
import gc
import inspect
import linecache
import sys
from itertools import islice
from types import FrameType, TracebackType
from typing import Any

from truestep.core.call_site import leaves_loop_by_statement
from truestep.core.user_frames import line_of_user_code


def trace_leaving_loop(frame: FrameType | None) -> TracebackType | None:
    """Return the traceback of the exception that leaves the loop which is run by `frame`; None where none does."""
    if leaves_loop_by_statement(frame):
        return None  # to look for what refers to a frame takes a while: all objects are asked
    # a generator around the loop's own, a progress bar's say, is closed with it
    while frame is not None and frame.f_code.co_flags & inspect.CO_GENERATOR:
        frame = frame.f_back
    if frame is None:
        return None
    found = (each for each in gc.get_referrers(frame) if isinstance(each, TracebackType))
    return next((each for each in found if each.tb_lasti == frame.f_lasti), None)


def describe_traceback(trace: TracebackType) -> str:
    """Return the exception of a traceback where it is known, else the line that raised it; and the place."""
    errors = [each for each in gc.get_referrers(trace) if isinstance(each, BaseException)]
    place = line_of_user_code(trace)
    path, _, line = (place or "").rpartition(":")
    written = linecache.getline(path, int(line)).strip() if place else ""
    # before Python 3.12 an exception on its way is no object yet, or none that knows its traceback
    unknown = f"an exception, `{written}`" if written else "an exception"
    what = f"{type(errors[0]).__name__}: {errors[0]}".splitlines()[0] if errors else unknown
    return f"{what} (at {place})" if place else what


def exit_status_of(trace: TracebackType) -> int | None:
    """Return the status of the `sys.exit(...)` or `raise SystemExit(...)` that a traceback ends in; None where it is none."""
    # the `exit` of an interactive session is Python code of its own
    while trace.tb_next is not None and not trace.tb_next.tb_frame.f_code.co_filename.startswith("<frozen"):
        trace = trace.tb_next
    call = _find_exit_call(trace)
    ends = (
        sys.exit,
        SystemExit,
        *(vars(builtins)[name] for name in ("exit", "quit") if name in vars(builtins)),
    )
    if call is None or _evaluate_expression(call.func, trace.tb_frame) not in ends:
        return None
    return exit_status(_evaluate_expression(call.args[0], trace.tb_frame) if call.args else None)


def exit_status(code: Any) -> int:
    """Return the status that Python exits with, of what `SystemExit` was given."""
    return code & 0xFF if isinstance(code, int) else int(code is not None)


def _find_exit_call(trace: TracebackType) -> ast.Call | None:
    code = trace.tb_frame.f_code
    place = next(islice(code.co_positions(), trace.tb_lasti // 2, None), (None,) * 4)
    first, last, begin, end = place
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        (statement,) = ast.parse(b"".join(lines)).body
    except (SyntaxError, ValueError):
        return None
    found = statement.exc if isinstance(statement, ast.Raise) else getattr(statement, "value", None)
    return found if isinstance(found, ast.Call) else None


def _evaluate_expression(written: ast.expr, frame: FrameType) -> Any:
    """Return the value of a constant, a name or an attribute of a module, as a frame sees it."""
    if isinstance(written, ast.Constant):
        return written.value
    if isinstance(written, ast.Attribute):
        module = _evaluate_expression(written.value, frame)
        return vars(module).get(written.attr) if inspect.ismodule(module) else None
    if not isinstance(written, ast.Name):
        return None
    for names in (frame.f_locals, frame.f_globals, vars(builtins)):
        if written.id in names:
            return names[written.id]
    return None
