# SPDX-License-Identifier: Apache-2.0
"""A loop over a pass that never ends, as far as its data and its source tell: said before the first batch."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from truestep.core.source_lookup import enclosing_loops, source_tree
from truestep.core.user_frames import innermost_user_frame
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor

_WAYS_OUT = ast.Break | ast.Return | ast.Raise | ast.Yield | ast.YieldFrom | ast.Await
_ENDS = ("finish", "close", "exit", "_exit", "quit", "kill", "abort", "interrupt_main")


def warn_of_endless_pass(run: RunState, stream: StreamCursor) -> None:
    """Say so where the loop that asks for a pass without an end has nothing in it that leaves it."""
    why = stream.source.why_endless
    frame = innermost_user_frame(sys._getframe(1)) if why else None
    loop = None if frame is None else _loop_asking_for_pass(frame)
    if frame is None or loop is None or _has_way_to_end(loop, frame.f_code.co_filename):
        return
    place = f"{Path(frame.f_code.co_filename).name}:{loop.lineno}"
    head = ast.unparse(loop).partition("\n")[0]
    run.screen.say_once(
        f"{place}: `{head}` never ends: {why}, and nothing in the loop leaves it. Say how many batches a pass has, "
        f"run.batches({stream.label}, limit=1000); or leave the loop, as by if run.step == 1000: break"
    )


def _loop_asking_for_pass(frame: FrameType) -> ast.For | None:
    """Return the loop at whose head `run.batches` is called now, with nothing around it that would end it."""
    loops = [each for each in enclosing_loops(frame) if isinstance(each, ast.For)]
    heads = [each for each in loops if each.iter.lineno <= frame.f_lineno <= (each.iter.end_lineno or 0)]
    for loop in heads:
        call = loop.iter
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in ("enumerate", "tqdm"):
            call = call.args[0] if call.args else call
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(".batches"):
            return loop
    return None


def _has_way_to_end(loop: ast.For, path: str) -> bool:
    """Whether anything in the loop may leave it, or anything in its file may end the run."""
    if any(isinstance(each, _WAYS_OUT) for part in loop.body for each in ast.walk(part)):
        return True
    tree = source_tree(path)
    return tree is None or any(name in _ENDS for name in _called_names(tree))


def _called_names(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Call):
            yield ast.unparse(each.func).rpartition(".")[2]
