# SPDX-License-Identifier: Apache-2.0
"""Gradients cleared before they could add up."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.checks.gradients.cleared_before_last_backward import lone_clear
from truestep.doctor.source.events import TraceEvent, TrainingLoop
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, moved_after, next_event


class ZeroGradInEveryMicroBatch(SourceCheck):
    """The optimizer steps every few batches, but the gradients are cleared at every batch.

    Why: only the last micro-batch of each window counts; the rest is computed and thrown away.

    Bad:
        for i, (x, y) in enumerate(loader):
            opt.zero_grad()  # here
            (F.cross_entropy(net(x), y) / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()

    Good:
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Fix: clear the gradients where the optimizer steps.
    """

    code = "GRAD004"
    words = ("zero_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clear that always happens where the step happens every few iterations."""
        for trace in module.traces:
            for loop in trace.training_loops():
                clear = _between_backwards(loop)
                if clear is not None:
                    text = (
                        "Cleared at every batch, while the step waits for several: only the last one counts."
                    )
                    yield At(clear.node, text, RISK if execution_of(trace, loop.path).is_named else BUG)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Clear after the step; where a library decides when that happens, the clear would not wait for it."""
        step = next_event(module, node, "step")
        if step.waits:
            raise SourceRewriteError
        return moved_after(module, node, step.node)


def _between_backwards(loop: TrainingLoop) -> TraceEvent | None:
    """Return a clear before every backward but the first of every window that has several."""
    run = execution_of(loop.trace, loop.path)
    windows = run.full_windows(loop.optimizer)
    if not run.is_certain or len({event.node for each in windows for event in each.backwards}) != 1:
        return None
    late = [
        [clear for before, clear in each.between("zero_grad") if before == len(each.backwards) - 1]
        for each in windows
    ]
    return late[0][0] if all(late) and lone_clear(loop) is None else None
