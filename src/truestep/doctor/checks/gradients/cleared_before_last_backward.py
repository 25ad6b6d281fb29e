# SPDX-License-Identifier: Apache-2.0
"""Gradients cleared in the micro-batch that steps, before its backward."""

from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.events import TraceEvent, TrainingLoop
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.module import SourceModule


class ClearedBeforeLastBackward(SourceCheck):
    """The batch that steps clears the gradients before its own backward.

    Why: what the micro-batches before it added is thrown away: only the last one counts.

    Bad:
        def is_update(step):
            return step % accumulation == 0

        for step, (x, y) in enumerate(loader):
            if is_update(step):
                opt.zero_grad()  # here
            F.cross_entropy(net(x), y).backward()
            if is_update(step):
                opt.step()

    Good:
        def is_update(step):
            return step % accumulation == 0

        for step, (x, y) in enumerate(loader):
            F.cross_entropy(net(x), y).backward()
            if is_update(step):
                opt.step()
                opt.zero_grad()

    Fix: clear after the step.
    """

    code = "GRAD047"
    words = ("zero_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clear in the last batch of every window alone, with one more backward behind it."""
        for trace in module.traces:
            for loop in trace.training_loops():
                found = lone_clear(loop)
                if found is not None:
                    severity = RISK if execution_of(trace, loop.path).is_named else BUG
                    yield At(found.node, "Cleared in the batch that steps, before its backward.", severity)


def lone_clear(loop: TrainingLoop) -> TraceEvent | None:
    """Return what clears before the last backward of every long window, and nowhere else in it."""
    run = execution_of(loop.trace, loop.path)
    windows = run.full_windows(loop.optimizer)
    if not run.is_certain or any(len({event.node for event in each.backwards}) != 1 for each in windows):
        return None
    cleared = [each.of("zero_grad") for each in windows]
    lone = [
        len(each) == 1 and each[0][0] == len(window.backwards) - 1
        for each, window in zip(cleared, windows, strict=True)
    ]
    return cleared[0][0][1] if lone and all(lone) else None
