# SPDX-License-Identifier: Apache-2.0
"""The schedule steps first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.events import exclusive
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, beside, moved_after, next_event
from truestep.doctor.watcher import Saw, Sights, Watcher

if TYPE_CHECKING:
    from truestep.doctor.watching.scene import OptimizerRecord, Scene


class SchedulerBeforeOptimizer(SourceCheck, Watcher):
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

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Step the schedule after the optimizer."""
        step = next_event(module, node, "step").node
        return moved_after(module, node, beside(module, node, step))

    def on_schedule(self, scene: Scene, scheduler: Any, place: Place) -> None:
        """Remember a schedule's step before the first one of its optimizer."""
        record = scene.records.get(id(scheduler.optimizer))
        if record is not None and record.num_steps == 0:
            self.early.setdefault(id(record), place)

    def __init__(self) -> None:
        self.early: dict[int, Place] = {}

    def on_stepped(self, scene: Scene, record: OptimizerRecord, place: Place) -> Sights:
        """The optimizer trains: the early step of its schedule was one too many."""
        early = self.early.pop(id(record), None)
        if early is not None and record.num_steps == 1:
            yield Saw(
                early, "The schedule was stepped before the optimizer's first step.", evidence={"step": 1}
            )
