# SPDX-License-Identifier: Apache-2.0
"""The schedule steps first."""

from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.events import exclusive
from truestep.doctor.source.module import SourceModule


class SchedulerBeforeOptimizer(SourceCheck):
    """scheduler.step() comes before optimizer.step() in the loop.

    Why: the first learning rate is skipped, and every later one comes one step early.

    Bad:
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)
        for epoch in range(4):
            sched.step()  # here
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Good:
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)
        for epoch in range(4):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            sched.step()

    Fix: all optimizer steps first, then scheduler.step().
    """

    code = "SCHED001"
    words = ("step()", "step(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a schedule's step that comes first of all steps in its loop."""
        for trace in module.traces:
            for event in trace.of("schedule"):
                path = event.loop_path()
                if not path or event.branches(path):
                    continue
                index = trace.events.index(event)
                steps = [
                    each
                    for each in trace.events
                    if each.kind == "step" and each.inside(path) and not exclusive(each, event)
                ]
                earlier = [
                    each
                    for each in trace.events[:index]
                    if each.kind in ("step", "unknown") and each.inside(path)
                ]
                if (
                    steps
                    and not earlier
                    and not [
                        each for each in trace.events[:index] if each.kind == "step" and each.loop_path()
                    ]
                ):
                    yield At(
                        event.node,
                        "The schedule is stepped before the optimizer: the first rate is never used.",
                    )
                    break
