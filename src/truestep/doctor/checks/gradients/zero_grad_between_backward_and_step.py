# SPDX-License-Identifier: Apache-2.0
"""Gradients cleared before they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, moved_after, next_event
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


class ZeroGradBetweenBackwardAndStep(SourceCheck, Watcher):
    """The gradients are cleared after backward() and before step().

    Why: the optimizer steps on gradients that are gone: nothing is learned (or only weight decay acts).

    Bad:
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.zero_grad()  # here
            opt.step()

    Good:
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()

    Fix: move zero_grad() before backward(), or after step(); of several optimizers, step the one whose weights the loss
    reaches.

    Evidence: the plain form of row 2 of docs/mistakes.md.
    """

    code = "GRAD002"
    words = ("zero_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clear whose last backward before and next step after it belong together."""
        for trace in module.traces:
            events = trace.of("backward", "step", "zero_grad")
            for index, event in enumerate(events):
                if event.kind == "zero_grad" and _wipes(trace, events, index):
                    yield At(
                        event.node,
                        "The gradients are cleared between backward() and step(): the step has none.",
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Clear after the step."""
        return moved_after(module, node, next_event(module, node, "step").node)

    def __init__(self) -> None:
        self._last: OptimizerRecord | None = None  # the one that has stepped last

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report a clear after the last backward before this step, if it left nothing to step on."""
        before, self._last = self._last, record
        if record.cleared_at is None or record.has_closure:
            return
        left = [each.grad for each in record.sample() if each.grad is not None]
        if not any(each.is_meta or bool(each.any()) for each in left):
            text = f"Cleared after backward(): step {record.num_steps + 1} has no gradients."
            if before is not None and before is not record:
                mine, other = history.called(record.optimizer), history.called(before.optimizer)
                told = (
                    f" {other} stepped on that backward, {mine} after another: is each given its own weights?"
                )
                text += told if mine != other else ""
            yield Observation(record.cleared_at, text, evidence={"step": record.num_steps + 1})

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report a closure that clears after its backward()."""
        if record.has_closure and record.cleared_at is not None and not record.has_gradients():
            text = f"Cleared after backward() in the closure: step {record.num_steps} had no gradients."
            yield Observation(record.cleared_at, text, evidence={"step": record.num_steps})


def _wipes(trace: Trace, events: list[TraceEvent], index: int) -> bool:
    clear = events[index]
    if not 0 < index < len(events) - 1 or clear.receiver is None:
        return False
    before, after = events[index - 1], events[index + 1]
    together = before.path == clear.path == after.path and bool(clear.path)
    if not together or before.kind != "backward" or after.kind != "step":
        return False
    if any(clear.subject.startswith(f"{whole.subject}.") for whole in trace.of("forward", "train", "eval")):
        return False  # a part of the model is kept from this step
    others = {event.subject for event in trace.of("step")} - {after.subject}
    return clear.subject == after.subject or not others
