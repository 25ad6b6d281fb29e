# SPDX-License-Identifier: Apache-2.0
"""Micro-batch losses added up at full size."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.events import Event, TrainingLoop
from truestep.doctor.source.module import SourceModule


class AccumulatedLossNotDivided(SourceCheck):
    """Gradients are accumulated over several batches, but the loss is not divided by their number.

    Why: the gradient is as many times too large as there are batches; SGD then takes that much longer steps.

    Bad:
        for i, (x, y) in enumerate(loader):
            F.cross_entropy(net(x), y).backward()  # here
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Good:
        for i, (x, y) in enumerate(loader):
            loss = F.cross_entropy(net(x), y) / 4
            loss.backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Fix: divide by the number of batches, or better weight each by its samples or tokens.
    """

    code = "GRAD005"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the backward of an accumulating loop in which nothing divides or weights the loss."""
        for trace in module.traces:
            for loop in trace.training_loops():
                backwards = [event for event in loop.of("backward") if not event.branches(loop.path)]
                if loop.window() is not None and len(backwards) == 1 and _accumulates(loop):
                    if not _is_scaled(backwards[0], loop):
                        yield At(
                            backwards[0].node,
                            "The loss of each micro-batch is added at full size, not divided.",
                            RISK,
                        )


def _accumulates(loop: TrainingLoop) -> bool:
    """Only where the clear waits together with the step are gradients meant to add up."""
    test = loop.condition()
    return any(
        isinstance(frame.node, ast.If) and frame.node.test is test
        for event in loop.of("zero_grad")
        for frame in event.path
    )


def _is_scaled(backward: Event, loop: TrainingLoop) -> bool:
    """Look for any division or product in the loop's body that is not part of the step's condition."""
    test = loop.condition()
    skipped = set(ast.walk(test)) if test is not None else set()
    nodes = [
        node
        for node in ast.walk(loop.node)
        if isinstance(node, ast.BinOp | ast.AugAssign) and node not in skipped
    ]
    scaled = any(isinstance(node.op, ast.Div | ast.Mult) for node in nodes)
    delegated = (
        isinstance(backward.node, ast.Call)
        and isinstance(backward.node.func, ast.Attribute)
        and bool(backward.node.args)
    )
    return scaled or delegated or any(frame.kind == "call" for frame in backward.path[len(loop.path) :])
