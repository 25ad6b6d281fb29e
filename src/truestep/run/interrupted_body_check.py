# SPDX-License-Identifier: Apache-2.0
"""Whether a loop's body that an exception has left had still something to do, as far as its source tells."""

import ast
from collections.abc import Iterator
from types import FrameType, TracebackType

from truestep.core.loop_exit_exception import describe_traceback, exit_status_of, trace_leaving_loop
from truestep.core.source_lookup import source_tree

_OF_ITS_OWN = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.AsyncFor | ast.While


def reason_body_was_left(frame: FrameType) -> str:
    """Return by what the body of a frame's loop is left undone at this moment; "" where that is no exception, or all is done."""
    trace = trace_leaving_loop(frame)
    # an exit ends the process: it is as meant as a `break`
    if trace is None or exit_status_of(trace) is not None or _is_raise_at_body_end(trace):
        return ""
    return describe_traceback(trace)


def _is_raise_at_body_end(trace: TracebackType) -> bool:
    """Tell a `raise` that a body ends with, be it in what is called there: a `break` out of several loops is written so."""
    each: TracebackType | None = trace
    while each is not None:
        tree = source_tree(each.tb_frame.f_code.co_filename)
        statement = None if tree is None else _statement_if_last(tree.body, each.tb_lineno)
        if statement is None or isinstance(statement, ast.Raise) is not (each.tb_next is None):
            return False
        each = each.tb_next
    return True


def _statement_if_last(block: list[ast.stmt], line: int, *, is_last: bool = True) -> ast.stmt | None:
    """Return the statement of a line where nothing follows on it in its function, or in the loop around it."""
    for each in block:
        if each.lineno <= line <= (each.end_lineno or 0):
            is_last = isinstance(each, _OF_ITS_OWN) or (is_last and each is block[-1])
            parts = list(_statement_blocks(each))
            found = [part for part in parts if part and part[0].lineno <= line <= (part[-1].end_lineno or 0)]
            if found:
                return _statement_if_last(
                    found[0], line, is_last=is_last and not _has_try_else_after(each, found[0])
                )
            return each if is_last else None
    return None


def _has_try_else_after(statement: ast.stmt, block: list[ast.stmt]) -> bool:
    """Tell the block of a `try` that its `else` follows on."""
    return isinstance(statement, ast.Try) and block is statement.body and bool(statement.orelse)


def _statement_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    match statement:
        case ast.Match(cases=parts) | ast.Try(handlers=parts):
            yield from (part.body for part in parts)
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
