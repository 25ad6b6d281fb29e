# SPDX-License-Identifier: Apache-2.0
"""A loop that never clears the gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import At, SourceCheck, Unsure
from truestep.doctor.finding import Place
from truestep.doctor.source.events import Event, Path, Trace, TrainingLoop
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, after, event_at, written
from truestep.doctor.watcher import Saw, Sights, Watcher

if TYPE_CHECKING:
    from truestep.doctor.watching.scene import OptimizerRecord, Scene


class BackwardWithoutZeroGrad(SourceCheck, Watcher):
    """A loop calls backward() and step() but never clears the gradients.

    Why: gradients add up over iterations, so every step uses all earlier batches too.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            F.cross_entropy(net(x), y).backward()
            opt.step()  # here

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: call optimizer.zero_grad() once per step, anywhere but between backward() and step().
    """

    code = "GRAD001"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report each training loop in which nothing clears what it steps."""
        for trace in module.traces:
            for loop in trace.training_loops():
                yield from self._judge(module, loop)
            for update, path in _steps_by_hand(trace):
                if not _is_made_anew(module, update, path):
                    text = "The loop calls backward() and steps by hand but never clears the gradients."
                    yield At(update.node, text)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Clear after the step."""
        _, step = event_at(module, node, "step")
        return [after(module, node, f"{written(module, node, step.receiver)}.zero_grad()")]

    def _judge(self, module: SourceModule, loop: TrainingLoop) -> Iterator[At | Unsure]:
        clears = loop.of("zero_grad")
        steps = {event.subject for event in loop.of("step")}
        mine = [event for event in clears if event.subject not in steps - {loop.optimizer}]
        step = loop.steps[0]
        if mine or any(loop.trace.within(path, "zero_grad") for path in loop.outer_loops()):
            return
        if loop.of("unknown") or _made_inside(module, loop):
            yield Unsure(step.node, "the optimizer or the model is handed to code outside of this file")
            return
        what = "this optimizer's gradients" if clears else "the gradients"
        yield At(step.node, f"The loop calls backward() and step() but never clears {what}.")

    def on_step(self, scene: Scene, record: OptimizerRecord, place: Place) -> Sights:
        """Report the second step in a row on gradients that still hold those of earlier steps."""
        record.num_stale_steps = record.num_stale_steps + 1 if record.stale and record.num_backwards else 0
        if record.num_stale_steps == 2 and not record.has_closure:
            text = f"The gradients still hold those of {record.num_stale_steps} earlier steps."
            yield Saw(
                place,
                text,
                evidence={"step": record.num_steps + 1, "steps_not_cleared": record.num_stale_steps},
            )


def _made_inside(module: SourceModule, loop: TrainingLoop) -> bool:
    """An optimizer or model that each iteration makes anew starts without gradients."""
    receiver = loop.steps[0].receiver
    definitions = module.definitions(receiver) if receiver is not None else []
    return any(each is not None and loop.node in module.ancestors(each) for each in definitions)


def _steps_by_hand(trace: Trace) -> Iterator[tuple[Event, Path]]:
    """Yield the first `p.data -= rate * p.grad` of each loop that goes backward and never clears, and the loop."""
    seen: set[Path] = set()
    for update in trace.of("update"):
        loops = [update.path[: i + 1] for i, frame in enumerate(update.path) if frame.kind == "loop"]
        around = [path for path in loops if trace.within(path, "backward")]
        if not around or around[-1] in seen:
            continue
        seen.add(around[-1])
        if not any(trace.within(path, "zero_grad", "unknown", "step") for path in around):
            yield update, around[-1]


def _is_made_anew(module: SourceModule, update: Event, loop: Path) -> bool:
    """Tell whether the loop gives the name another tensor, which has no gradient yet."""
    name = update.receiver
    if not isinstance(name, ast.Name):
        return False
    home = loop[-1].node
    return any(
        each.how in ("assign", "unpack", "with") and home in module.ancestors(each.node)
        for each in module.bindings(name)
    )
