# SPDX-License-Identifier: Apache-2.0
"""`while run.epoch < 3` without a loop over run.epochs: nothing counts epochs there, and the loop never ends."""

import ast
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from types import CodeType, FrameType

from truestep.core.errors import OptionError
from truestep.core.frames import is_library_file
from truestep.core.written_source import loops_around


def refuse_epoch_that_never_moves(asked: Collection[tuple[CodeType, int]]) -> None:
    """Raise an OptionError where a pass begins in a loop that ends by `run.epoch`, which only run.epochs moves.

    `asked`: the lines of the user's that have asked for it where no loop over run.epochs was under way.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_library_file(frame.f_code.co_filename):
            lines = {line for code, line in asked if code is frame.f_code}
            for loop in loops_around(frame) if lines else ():
                if isinstance(loop, ast.While) and _ends_by(loop, lines):
                    raise OptionError(_said(frame, loop))
        frame = frame.f_back


def _ends_by(loop: ast.While, lines: set[int]) -> bool:
    tests = [loop.test, *(each.test for each in loop.body if isinstance(each, ast.If) and _leaves(each))]
    if any(_spans(test) & lines for test in tests):
        return True
    return any(_written_by(name, loop, lines) for test in tests for name in _names(test))


def _spans(node: ast.expr) -> set[int]:
    return {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _names(test: ast.expr) -> Iterator[str]:
    return (each.id for each in ast.walk(test) if isinstance(each, ast.Name))


def _leaves(node: ast.If) -> bool:
    return any(isinstance(each, ast.Break | ast.Return) for each in node.body)


def _written_by(name: str, loop: ast.While, lines: set[int]) -> bool:
    """Whether all that the body writes to a variable is what `run.epoch` is."""
    written = [
        each
        for statement in loop.body
        for each in ast.walk(statement)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id == name
    ]
    return bool(written) and all(each.lineno in lines for each in written)


def _said(frame: FrameType, loop: ast.While) -> str:
    text = ast.unparse(loop.test)
    count = re.search(r"\d+", text)
    return (
        f"{Path(frame.f_code.co_filename).name}:{loop.lineno}: `while {text}:` waits for run.epoch, which a loop over run.epochs "
        "counts and nothing else does. None is under way here, so it stays what it is, and the training never ends. Write for "
        f"epoch in run.epochs({count[0] if count else '...'}): in its place, which also goes on where a stopped run was."
    )
