# SPDX-License-Identifier: Apache-2.0
"""`for i in range(len(items), 0)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.source.cached_questions import mentions_torch
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.value_origins import constant

_RANGES = ("range", "numpy.arange", "torch.arange")


class LoopNeverRuns(SourceCheck):
    """A range counts away from its end, so it is empty and its loop never runs.

    Why: what stands in the loop is done for nothing of what it is meant for, and nothing fails.

    Bad:
        blocks = nn.ModuleList([net])
        for index in range(len(blocks), 0, 2):  # here
            x = blocks[index](x)

    Good:
        blocks = nn.ModuleList([net])
        for index in range(0, len(blocks), 2):
            x = blocks[index](x)

    Fix: exchange start and end, or count down with a step below 0.

    Evidence: 186 repositories: 1 true, 0 false.
    """

    code = "VALUE029"
    words = ("range",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report ranges whose start, end and step show that they are empty."""
        if not module.program.answer(mentions_torch):
            return
        for call in module.calls(*_RANGES):
            severity = _empty_range_severity(call)
            if severity is not None:
                yield At(call, f"{ast.unparse(call)} is empty: nothing is done in it.", severity)


def _empty_range_severity(call: ast.Call) -> Severity | None:
    """Return how certain it is that no number lies in a range."""
    if len(call.args) < 2 or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    start, stop = call.args[:2]
    step = constant(call.args[2]) if len(call.args) > 2 else 1
    first, last = constant(start), constant(stop)
    if not isinstance(step, (int, float)) or not step:
        return None
    if isinstance(first, (int, float)) and isinstance(last, (int, float)):
        return BUG if (last - first) * step <= 0 and (first or last) else None
    if any(isinstance(each, ast.USub) for part in (start, stop) for each in walk(part)):
        return None  # what counts from the end
    if step > 0 and isinstance(last, (int, float)) and last <= 0:
        return BUG if _is_length_or_one_less(start) else RISK
    if step < 0 and isinstance(first, (int, float)) and first <= 0:
        return BUG if _is_length_or_one_less(stop) else RISK
    return None


def _is_length_or_one_less(node: ast.expr) -> bool:
    """Tell a length, or one less."""
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        node = node.left
    return isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in (
        "len",
        "size",
    )
