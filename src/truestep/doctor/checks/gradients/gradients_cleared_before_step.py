# SPDX-License-Identifier: Apache-2.0
"""Gradients cleared before they are used, or before they could add up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.events import Trace, TraceEvent, TrainingLoop
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import (
    Edits,
    SourceRewriteError,
    move_after,
    next_event,
    remove_statement,
)
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

WINDOWS = 2  # of accumulated batches that show the same, while the watch looks


class GradientsClearedBeforeStep(SourceCheck, Watcher):
    """The gradients are cleared after backward() and before step(), or at every batch where the optimizer steps every few.

    Why: the optimizer steps on gradients that are gone: nothing is learned (or only weight decay acts). Or the last
    micro-batch of each window alone counts; the rest is computed and thrown away.

    Bad:
        for i, (x, y) in enumerate(loader):
            opt.zero_grad()  # here
            (F.cross_entropy(net(x), y) / 2).backward()
            if (i + 1) % 2 == 0 or i + 1 == len(loader):
                opt.step()

    Good:
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 2).backward()
            if (i + 1) % 2 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Fix: clear the gradients where the optimizer steps, before backward() or after step(); of several optimizers, step the one
    whose weights the loss reaches.

    Evidence: the plain form of rows 2 and 4 of docs/mistakes.md; 186 repositories, beds F, G, H, S, U, X: 7
    true, 1 false.
    """

    code = "GRAD004"
    words = ("zero_grad",)

    def __init__(self) -> None:
        # backwards that a clear threw away, and where it stood
        self.lost: dict[int, list[tuple[Place, Place]]] = {}
        self.stepped: OptimizerRecord | None = None  # the one that has stepped last
        self.last: Place | None = None  # the last backward
        self.num_reads = 0  # of gradients, by then
        self.windows: dict[tuple[Place, int], int] = {}  # by the place of the clear, and how many were lost

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> None:
        """Remember where it stands."""
        self.last, self.num_reads = place, history.num_gradient_reads

    def on_clear(self, history: WatchHistory, records: list[OptimizerRecord], place: Place) -> None:
        """What a backward has left here since the last step is lost, unless the script has read it."""
        for record in records if history.num_gradient_reads == self.num_reads else ():
            if self.last is not None and record.num_backwards > len(self.lost.get(id(record), ())):
                self.lost.setdefault(id(record), []).append((self.last, place))

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Look for what was cleared since the backward before this step, and within its window."""
        yield from self._find_lost_windows(history, record)
        yield from self._find_cleared_gradients(history, record)

    def _find_lost_windows(self, history: WatchHistory, record: OptimizerRecord) -> Observations:
        """Report windows in which every backward but the last was lost, all of one line."""
        lost = self.lost.pop(id(record), [])
        if len(history.records) != 1 or not lost or len({*lost, (self.last, lost[0][1])}) != 1:
            return
        if record.num_backwards == len(lost) + 1:
            key = lost[0][1], len(lost)
            self.windows[key] = self.windows.get(key, 0) + 1
            if self.windows[key] == WINDOWS:
                text = (
                    f"Of {len(lost) + 1} backwards before each step the gradients of {len(lost)} are cleared."
                )
                yield Observation(lost[0][1], text, BUG, {"backwards": len(lost) + 1, "lost": len(lost)})

    def _find_cleared_gradients(self, history: WatchHistory, record: OptimizerRecord) -> Observations:
        """Report a clear after the last backward before this step, if it left nothing to step on."""
        before, self.stepped = self.stepped, record
        is_frozen = not any(each.requires_grad for each in record.parameters())  # no backward would leave any
        if record.cleared_at is None or record.has_closure or is_frozen:
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

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clear between backward and step, and one in every iteration where the step comes every few."""
        for trace in module.traces:
            events = trace.of("backward", "step", "zero_grad")
            for index, event in enumerate(events):
                if event.kind == "zero_grad" and _is_clear_before_step(trace, events, index):
                    text = "The gradients are cleared between backward() and step(): the step has none."
                    yield At(event.node, text)
            for loop in trace.training_loops():
                clear = _clear_between_backwards(loop)
                if clear is not None and not _are_gradients_read(module, loop):
                    text = "Cleared before the last backward, while the step waits for several: only that one counts."
                    yield At(clear.node, text, RISK if execution_of(trace, loop.path).is_named else BUG)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Clear after the step; where a library decides when that happens, the clear would not wait for it."""
        step = next_event(module, node, "step")
        if step.waits:
            raise SourceRewriteError
        if _is_cleared_behind(module, step.node, node):
            return [remove_statement(module, node)]
        return move_after(module, node, step.node)


def _is_cleared_behind(module: SourceModule, step: ast.AST, clear: ast.AST) -> bool:
    """Tell a step in whose block the same clear stands below."""
    here, same = module.statement(step), ast.unparse(module.statement(clear))
    block = next(
        (
            each
            for _, each in ast.iter_fields(module.parents[here])
            if isinstance(each, list) and here in each
        ),
        [],
    )
    return any(ast.unparse(each) == same for each in block[block.index(here) + 1 :])


def _are_gradients_read(module: SourceModule, loop: TrainingLoop) -> bool:
    """Tell whether the loop, or a function that it calls, reads gradients: what it keeps of them is not lost.

    What is read only where the step is taken comes too late for those that were cleared.
    """
    home = module.home(loop.node)
    guard = _if_around_step(home, loop)
    late = set(walk(guard)) if guard is not None else set()
    reads = [each for each in home.inside(loop.node, ast.Attribute) if each not in late]
    for call in home.inside(loop.node, ast.Call):
        target = None if call in late else home.functions.target(call)
        reads += module.inside(target, ast.Attribute) if target is not None else []
    return any(_is_gradient_read(module.home(each), each) for each in reads)


def _if_around_step(module: SourceModule, loop: TrainingLoop) -> ast.If | None:
    """Return the test in the loop under which it steps, and under which nothing goes backward."""
    for guard in module.inside(loop.node, ast.If):
        held = set(walk(guard))
        if all(each.node in held for each in loop.steps) and not any(
            each.node in held for each in loop.of("backward")
        ):
            return guard
    return None


def _is_gradient_read(module: SourceModule, node: ast.Attribute) -> bool:
    """Tell a read of `p.grad`, but for `p.grad.zero_()` and comparisons with None; torch.autograd.grad is none."""
    if node.attr != "grad" or not isinstance(node.ctx, ast.Load) or module.qualify(node) is not None:
        return False
    above = module.parents.get(node)
    return not isinstance(above, ast.Compare) and getattr(above, "attr", "") not in ("zero_", "detach_")


def _clear_between_backwards(loop: TrainingLoop) -> TraceEvent | None:
    """Return a clear before every backward but the first of every window that has several."""
    run = execution_of(loop.trace, loop.path)
    windows = run.full_windows(loop.optimizer)
    is_one = len({event.node for each in windows for event in each.backwards}) == 1
    if not is_one or not run.is_certain or _has_unseen_closure(loop):
        return None
    late = [
        [clear for before, clear in each.between("zero_grad") if before == len(each.backwards) - 1]
        for each in windows
    ]
    return late[0][0] if all(late) else None


def _has_unseen_closure(loop: TrainingLoop) -> bool:
    """Tell whether a step is given a function that is not in sight: it goes backward, too."""
    return not {each.node for each in loop.of("unknown")}.isdisjoint(each.node for each in loop.steps)


def _is_clear_before_step(trace: Trace, events: list[TraceEvent], index: int) -> bool:
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
