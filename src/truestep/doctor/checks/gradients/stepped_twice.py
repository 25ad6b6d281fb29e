# SPDX-License-Identifier: Apache-2.0
"""Two steps for one backward."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.events import Trace, TraceEvent, exclusive
from truestep.doctor.source.module import SourceModule


class SteppedTwice(SourceCheck):
    """An optimizer steps, and steps again on the same gradients: nothing goes backward in between.

    Why: each update is applied twice, or gradients that are still to be added up are applied one by one, and all of them again.

    Bad:
        for i, (x, y) in enumerate(loader):
            loss = F.cross_entropy(net(x), y) / 4
            loss.backward()
            opt.step()
            if (i + 1) % 4 == 0:
                opt.step()  # here
                opt.zero_grad()

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: step once, where the gradients are whole.
    """

    code = "GRAD064"
    words = (".step(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a step that follows another of its optimizer in the same iteration, with no new gradients since."""
        for trace in module.traces:
            if len(trace.of("step")) > 1 and trace.of("backward"):
                yield from _again(trace)


def _again(trace: Trace) -> Iterator[At]:
    last: dict[str, TraceEvent] = {}
    for event in trace.events:
        if event.kind in ("backward", "unknown", "zero_grad", "learn", "unscale"):
            last.clear()
        elif event.kind == "step" and isinstance(event.node, ast.Call) and not event.node.args:
            before = last.get(event.subject)
            if before is not None and _is_same_iteration(trace, before, event):
                yield At(event.node, "The optimizer has stepped on these gradients before.")
            last[event.subject] = event


def _is_same_iteration(trace: Trace, first: TraceEvent, second: TraceEvent) -> bool:
    """Tell whether whatever comes to the second step came through the first."""
    loop = second.loop_path()
    if first.node is second.node or not loop or first.loop_path() != loop or exclusive(first, second):
        return False
    certain = set(first.path) - {frame for frame in first.path if frame.kind == "call"} <= set(second.path)
    return certain and first.of_optimizer and bool(trace.within(loop, "backward"))
