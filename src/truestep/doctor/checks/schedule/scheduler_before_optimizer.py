# SPDX-License-Identifier: Apache-2.0
"""The schedule steps first."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import ADVICE, BUG, RISK, At, SourceCheck, Unsure
from truestep.doctor.checks.deprecated.scalar_indexed import ScalarIndexed
from truestep.doctor.finding import Place, Severity
from truestep.doctor.source.accumulation_windows import without_updates_of_others
from truestep.doctor.source.events import Trace, TraceEvent, TrainingLoop, are_exclusive
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, given_to, walk
from truestep.doctor.source.rewriting import Edits, move_after, next_event, sibling_statement
from truestep.doctor.source.value_origins import value_origins
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

_TRAINS = re.compile(r"^(train(_(one_)?(epoch|step|batch|model|loop))?|fit(_one_epoch)?|run_training)$")


class SchedulerBeforeOptimizer(SourceCheck, Watcher):
    """scheduler.step() comes before optimizer.step() in the loop, or is given the epoch that is over.

    Why: every learning rate comes one step early; one that holds for a single step, as the first of a warm-up,
    is never used.

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

    Fix: all optimizer steps first, then scheduler.step(). Make the schedule for the optimizer that steps.

    Evidence: leoxiaobin/deep-high-resolution-net.pytorch 6f69e467 tools/train.py:183; qfgaohao/pytorch-ssd
    7a839cbc prune_alexnet.py:105; corpus, 186 repositories, beds A, B, C, E, F, G, H, I, K, M, N, P, Q, R, S,
    T, U, V, W, Y: 42 true, 14 debatable, 3 false.
    """

    code = "SCHED001"
    gone_since = (1, 1)
    words = ("step()", "step(")

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report a schedule's step that comes first of all steps in its loop."""
        yield from _find_steps_to_finished_epoch(module)
        for trace in module.traces:
            for event in trace.of("schedule"):
                if not _is_first_step_in_loop(module, trace, event):
                    continue
                if _is_scheduler_by_name_only(module, event):
                    yield Unsure(
                        event.node, "what makes the schedule is out of sight: it may be none of torch's"
                    )
                    break
                if steps := _optimizer_steps_in_loop(trace, event):
                    if all(_is_training_conditional(module, trace, event, step) for step in steps):
                        yield Unsure(
                            event.node, "the schedule counts rounds of the loop, of which not each one trains"
                        )
                        break
                    text = "The schedule is stepped before the optimizer: each rate comes one step early."
                    yield At(event.node, text, _severity(module, event, steps))
                    break
                if (trains := _later_training_call(module, trace, event)) is not None:
                    name = ast.unparse(trains.func)
                    text = f"The schedule is stepped before {name}(), which steps the optimizer by its name."
                    yield At(event.node, text, RISK)
                    break

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Step the schedule after the optimizer."""
        step = next_event(module, node, "step").node
        return move_after(module, node, sibling_statement(module, node, step))

    def on_schedule(self, history: WatchHistory, scheduler: Any, place: Place) -> None:
        """Remember a schedule's step before the first one of its optimizer."""
        record = history.record_of(scheduler.optimizer)
        if record is None or not record.num_steps:
            self.idle.setdefault(id(scheduler), (scheduler, place))
        skipped = getattr(scheduler, "last_epoch", 1) > 0  # step(0) sets the first rate once more
        if record is not None and record.num_steps == 0 and skipped:
            first, _ = self.early.get(id(record), (place, 0))
            self.early[id(record)] = first, record.num_backwards

    def __init__(self) -> None:
        self.early: dict[int, tuple[Place, int]] = {}  # the first, and the backwards before the last
        self.idle: dict[int, tuple[Any, Place]] = {}  # schedules that were stepped before their optimizers
        self.num_backwards: dict[int, int] = {}  # before the first step

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> None:
        """Remember how many batches the first step is of."""
        if record.num_steps == 0:
            self.num_backwards[id(record)] = record.num_backwards

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """The optimizer trains: the early step of its schedule was one too many."""
        place, before = self.early.pop(id(record), (place, -1))
        accumulates = 0 < before < self.num_backwards.pop(id(record), 0)  # between its batches
        if before >= 0 and record.num_steps == 1 and not accumulates:
            yield Observation(
                place, "The schedule was stepped before the optimizer's first step.", evidence={"step": 1}
            )

    def on_finish(self, history: WatchHistory) -> Observations:
        """Report the schedules whose optimizer has not stepped at all, while another one has: it was made anew."""
        for scheduler, place in self.idle.values():
            record = history.record_of(scheduler.optimizer)
            if history.stepped_optimizers() and (record is None or not record.num_steps):
                text = "The schedule belongs to an optimizer that never steps: the one that trains keeps its first rate."
                yield Observation(place, text, BUG)


def _is_first_step_in_loop(module: SourceModule, trace: Trace, event: TraceEvent) -> bool:
    """Tell a schedule's step that comes first of all steps in its loop, and neither now and then nor to set the rate back."""
    if not event.loop_path() or event.branches(event.loop_path()) or _has_step_argument(event):
        return False
    comes_later = _is_after_optimizer_step(trace, event) or _steps_in_every_micro_batch(trace, event)
    return not (comes_later or _is_last_epoch_assigned(module, event))


def _is_scheduler_by_name_only(module: SourceModule, event: TraceEvent) -> bool:
    """Tell a schedule that only its name says is one, made by what is imported from out of sight."""
    if event.receiver is None or not module.kinds.is_guess(event.receiver):
        return False
    made = [each for each in value_origins(module, event.receiver) if isinstance(each, ast.Call)]
    return any("." in (module.qualify(each.func) or "") for each in made)


def _find_steps_to_finished_epoch(module: SourceModule) -> Iterator[At]:
    """Report `scheduler.step(epoch)` behind the steps of a loop that counts its epochs from 0."""
    for event in {
        id(each.node): each
        for trace in module.traces
        for each in trace.of("schedule")
        if _is_given_finished_epoch(trace, each)
    }.values():
        text = f"{ast.unparse(event.node)} sets the rate of the epoch that is over: the next one is trained with it, too."
        yield At(event.node, text, RISK)


def _is_given_finished_epoch(trace: Trace, event: TraceEvent) -> bool:
    call, loop = event.node, event.loops()[-1] if event.loops() else None
    given = given_to(call) if isinstance(call, ast.Call) else []
    match loop:
        case ast.For(
            target=ast.Name(id=name),
            iter=ast.Call(func=ast.Name(id="range"), args=[_] | [ast.Constant(value=0), _]),
        ):
            steps = [
                each
                for each in trace.within(event.loop_path(), "step")
                if trace.order[each] < trace.order[event]
            ]
            return bool(steps) and [dotted_name(each) for each in given] == [name]
    return False


def _has_step_argument(event: TraceEvent) -> bool:
    """`step(epoch)` sets the rate of that epoch, and `step(metric)` has no rate to skip."""
    return isinstance(event.node, ast.Call) and bool(event.node.args or event.node.keywords)


def _is_last_epoch_assigned(module: SourceModule, event: TraceEvent) -> bool:
    """Tell `scheduler.last_epoch = start - 1`: the first step leads to the epoch that begins."""
    name = dotted_name(event.receiver) if event.receiver is not None else None
    written = [base for base, _ in module.index.written.get("last_epoch", [])]
    return name is not None and name in map(dotted_name, written)


def _steps_in_every_micro_batch(trace: Trace, event: TraceEvent) -> bool:
    """Tell a schedule of batches: what comes before the optimizer's step there belongs to its earlier batches."""
    found = [_scheduler_step_per_backward(loop) for loop in trace.training_loops()]
    return any(each is not None and each.node is event.node for each in found)


def _scheduler_step_per_backward(loop: TrainingLoop) -> TraceEvent | None:
    """Return the schedule's step that comes once for each backward of every window but the first, and the longest."""
    run = execution_of(loop.trace, loop.path)
    windows = run.full_windows(loop.optimizer)
    if not windows or not run.is_certain:
        return None
    counts = [Counter[str]()]  # of each window; behind its own step is the first event of the next
    for event in without_updates_of_others(run.happened, loop.optimizer, run.contexts):
        counts[-1][event.kind] += 1
        if event.kind == "step":
            counts.append(Counter())
    stepped = {event.node: event for event in run.happened if event.kind == "schedule"}
    alike = [each["schedule"] == each["backward"] for each in counts[1:-1]]
    if len(stepped) != 1 or not alike or not all(alike):
        return None
    return next(iter(stepped.values()))


def _is_training_conditional(module: SourceModule, trace: Trace, event: TraceEvent, step: TraceEvent) -> bool:
    """Tell a training under a test, all of it, in rounds that each step the schedule: those of an environment, say."""
    home = module.home(event.node)
    first = home.statement(event.node)
    block = list(ast.iter_child_nodes(home.parents[first]))
    behind = block[block.index(first) + 1 :]
    updates = {step.node, *(each.node for each in trace.within(event.loop_path(), "backward"))}
    for each in behind:
        parts = {*walk(each)}
        if updates & parts or any(isinstance(part, (ast.For, ast.While)) for part in parts):
            return isinstance(each, ast.If) and updates <= parts
        if isinstance(each, ast.If) and isinstance(each.body[-1], (ast.Continue, ast.Return)):
            return True
        if any(isinstance(part, ast.Call) and home.kind(part.func) in ("module", "ddp") for part in parts):
            return False  # what is asked for from here on may be of the loss
    return False


def _severity(module: SourceModule, event: TraceEvent, steps: list[TraceEvent]) -> Severity:
    if any(_runs_on_old_torch(module, step) for step in steps) or _is_stepped_per_batch(module, event):
        return ADVICE
    return RISK


def _is_stepped_per_batch(module: SourceModule, event: TraceEvent) -> bool:
    """Tell a schedule that each batch steps: one step early is one update of all, no epoch."""
    loop = event.loops()[-1]
    home = module.home(loop)
    drawn = [
        each
        for each in home.inside(loop, ast.Call)
        if dotted_name(each.func) == "next" and home.loop(each) is loop
    ]
    over = (
        [each for each in walk(loop.iter) if isinstance(each, ast.expr)] if isinstance(loop, ast.For) else []
    )
    return bool(drawn) or any(home.kind(each) == "loader" for each in over)


def _runs_on_old_torch(module: SourceModule, step: TraceEvent) -> bool:
    """Tell a loop that reads `loss.data[0]`: the torch in which that runs wants the schedule first."""
    loops = step.loops()
    home = module.home(loops[-1])
    read = (
        [each.node for each in ScalarIndexed().read(home) if isinstance(each, At)]
        if ".data[0]" in home.text
        else []
    )
    return any(loops[-1] in home.ancestors(each) for each in read)


def _optimizer_steps_in_loop(trace: Trace, event: TraceEvent) -> list[TraceEvent]:
    """Return the optimizers' steps in the loop of a schedule's step."""
    return [each for each in trace.within(event.loop_path(), "step") if not are_exclusive(each, event)]


def _is_after_optimizer_step(trace: Trace, event: TraceEvent) -> bool:
    """Tell whether something was, or may have been, stepped before."""
    earlier = trace.events[: trace.events.index(event)]
    if any(each.kind in ("step", "unknown") and each.inside(event.loop_path()) for each in earlier):
        return True
    return any(each.kind == "step" and each.loop_path() for each in earlier)


def _later_training_call(module: SourceModule, trace: Trace, event: TraceEvent) -> ast.Call | None:
    """Return the call behind it, of a function that is not in this file and is named for training."""
    home = event.loop_path()[-1].node
    known = {each.node for each in trace.events if each.kind != "unknown"}
    found = [
        each
        for each in walk(home)
        if isinstance(each, ast.Call)
        and each not in known
        and module.functions.target(each) is None
        and _TRAINS.search(ast.unparse(each.func).rsplit(".", 1)[-1])
    ]
    place = (event.node.lineno, event.node.col_offset)
    if module.scope(event.node) is not module.scope(home) or len(found) != 1:
        return None
    return found[0] if place < (found[0].lineno, found[0].col_offset) else None
