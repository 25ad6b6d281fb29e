# SPDX-License-Identifier: Apache-2.0
"""A schedule in epochs, stepped per batch."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, seen_through

COUNTS = {"CosineAnnealingLR": (1, "T_max"), "StepLR": (1, "step_size")}


class EpochsCountedPerBatch(SourceCheck):
    """A schedule whose length is the number of epochs is stepped at every batch.

    Why: it is over within the first epochs; the rest trains with the last rate (or a cosine that goes up
    again).

    Bad:
        epochs = 20
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
        for epoch in range(epochs):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                sched.step()  # here

    Good:
        epochs = 20
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
        for epoch in range(epochs):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            sched.step()

    Fix: step it per epoch, or give its length in batches: epochs * len(loader).
    """

    code = "SCHED004"
    words = ("lr_scheduler", "LR(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one stepped in an inner loop whose length is the text of the outer loop's range."""
        for trace in module.traces:
            for event in trace.of("schedule"):
                length = self._length(module, event)
                loops = event.loops()
                if length is None or len(loops) < 2:
                    continue
                if (
                    _is_range(loops[-2], length)
                    and not event.branches(event.loop_path())
                    and _same_loop(trace, event)
                ):
                    yield At(
                        event.node,
                        f"The schedule lasts {length} steps, but is stepped in the inner loop.",
                        RISK,
                    )

    def _length(self, module: SourceModule, event: TraceEvent) -> str | None:
        for each in module.definitions(event.receiver) if event.receiver is not None else ():
            value = seen_through(module, each)
            if isinstance(value, ast.Call):
                position = COUNTS.get((module.qualify(value.func) or "").rsplit(".", 1)[-1])
                given = argument(value, *position) if position else None
                return ast.unparse(given) if given is not None else None
        return None


def _is_range(loop: ast.AST, length: str) -> bool:
    source = ast.unparse(loop.iter) if isinstance(loop, ast.For) else ""
    return source in (
        f"range({length})",
        f"range(0, {length})",
        f"range(1, {length} + 1)",
        f"tqdm(range({length}))",
    )


def _same_loop(trace: Trace, event: TraceEvent) -> bool:
    return any(step.loop_path() == event.loop_path() for step in trace.of("step"))
