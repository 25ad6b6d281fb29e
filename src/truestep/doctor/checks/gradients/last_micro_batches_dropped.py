# SPDX-License-Identifier: Apache-2.0
"""The end of an epoch is not stepped."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.events import Path, Trace
from truestep.doctor.source.module import SourceModule


class LastMicroBatchesDropped(SourceCheck):
    """The accumulation window starts with a step of its own, or its last batches are never stepped.

    Why: with `i % k == 0` the first step has one batch; with an epoch that k does not divide, the rest
    leaks into the next.

    Bad:
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            if i % 4 == 0:  # here
                opt.step()
                opt.zero_grad()

    Good:
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Fix: step when (i + 1) % k == 0, and at the last batch.
    """

    code = "GRAD006"
    words = ("% ",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a window counted from zero, and one that has no clause for the end."""
        for trace in module.traces:
            for loop in trace.training_loops():
                test = loop.condition()
                if test is None or loop.window() is None or not isinstance(loop.node, ast.For):
                    continue
                if any(
                    frame.node is _if_of(module, test)
                    for event in loop.of("backward")
                    for frame in event.path
                ):
                    continue  # whole batches are left out, not their steps
                if not any(
                    frame.node is _if_of(module, test)
                    for event in loop.of("zero_grad")
                    for frame in event.path
                ):
                    continue
                if _counts_from_zero(test):
                    yield At(
                        test, "`i % k == 0` steps after the first batch already, then one batch late.", RISK
                    )
                elif not isinstance(test, ast.BoolOp) and not _stepped_after(trace, loop.path):
                    yield At(test, "Batches left over at the end of the loop are never stepped.", RISK)


def _if_of(module: SourceModule, test: ast.expr) -> ast.AST:
    return module.parents[test]


def _counts_from_zero(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Name)
        for node in ast.walk(test)
    ) and not isinstance(test, ast.BoolOp)


def _stepped_after(trace: Trace, path: Path) -> bool:
    inside = [index for index, event in enumerate(trace.events) if event.inside(path)]
    return any(event.kind == "step" for event in trace.events[inside[-1] + 1 :])
