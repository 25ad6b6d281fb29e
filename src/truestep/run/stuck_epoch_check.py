# SPDX-License-Identifier: Apache-2.0
"""`while run.epoch < 3` without a loop over run.epochs: nothing counts epochs there, and the loop never ends."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from types import CodeType, FrameType

from truestep.core.errors import OptionError
from truestep.core.source_lookup import enclosing_loops
from truestep.core.user_frames import running_user_frames


def refuse_loop_by_unmoving_epoch(asked: Collection[tuple[CodeType, int]]) -> None:
    """Raise an OptionError where a pass begins in a loop that ends by `run.epoch`, which only run.epochs moves.

    `asked`: the lines of the user's that have asked for it where no loop over run.epochs was under way.
    """
    for frame in running_user_frames():
        lines = {line for code, line in asked if code is frame.f_code}
        for loop in enclosing_loops(frame) if lines else ():
            if isinstance(loop, ast.While) and _is_ended_by_epoch_test(loop, lines):
                raise OptionError(_unmoving_epoch_message(frame, loop))


def _is_ended_by_epoch_test(loop: ast.While, lines: set[int]) -> bool:
    tests = [
        loop.test,
        *(each.test for each in loop.body if isinstance(each, ast.If) and _has_break_or_return(each)),
    ]
    if any(_line_numbers_of_node(test) & lines for test in tests):
        return True
    return any(
        _is_assigned_only_from_epoch(name, loop, lines)
        for test in tests
        for name in _variable_names_in_test(test)
    )


def _line_numbers_of_node(node: ast.expr) -> set[int]:
    return {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _variable_names_in_test(test: ast.expr) -> Iterator[str]:
    return (each.id for each in ast.walk(test) if isinstance(each, ast.Name))


def _has_break_or_return(node: ast.If) -> bool:
    return any(isinstance(each, ast.Break | ast.Return) for each in node.body)


def _is_assigned_only_from_epoch(name: str, loop: ast.While, lines: set[int]) -> bool:
    """Whether all that the body writes to a variable is what `run.epoch` is."""
    written = [
        each
        for statement in loop.body
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id == name
    ]
    return bool(written) and all(each.lineno in lines for each in written)


def _unmoving_epoch_message(frame: FrameType, loop: ast.While) -> str:
    text = ast.unparse(loop.test)
    count = re.search(r"\d+", text)
    return (
        f"{Path(frame.f_code.co_filename).name}:{loop.lineno}: `while {text}:` waits for run.epoch, which a loop over run.epochs "
        "counts and nothing else does. None is under way here, so it stays what it is, and the training never ends. Write for "
        f"epoch in run.epochs({count[0] if count else '...'}): in its place, which also goes on where a stopped run was."
    )
