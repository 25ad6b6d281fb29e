# SPDX-License-Identifier: Apache-2.0
"""The end of an epoch is not stepped."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.accumulation_windows import AccumulationWindow
from truestep.doctor.source.batch_counts import loader_of_loop, num_batches
from truestep.doctor.source.events import Path, Trace, TrainingLoop
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.frames import TOP, LocatedExpression
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.training_actions import STEP


class LastMicroBatchesDropped(SourceCheck):
    """The accumulation window starts with a step of its own, or its last batches are never stepped.

    Why: that step is of fewer batches than its scale says; what is left over goes into the next epoch's
    first step, or into none.

    Bad:
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            if i % 4 == 0:  # here
                opt.step()
                opt.zero_grad()

    Good:
        for i, (x, y) in enumerate(loader):
            k = min(4, len(loader) - i // 4 * 4)  # fewer at the end
            (F.cross_entropy(net(x), y) / k).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Fix: step when (i + 1) % k == 0, and at the last batch; divide by how many batches each step is made of.

    Evidence: microsoft/Swin-Transformer f82860bf main_simmim_ft.py:187; microsoft/Swin-Transformer f82860bf
    main_simmim_pt.py:147; corpus, 186 repositories, beds A, D, E, F, H, I, N, T, W, X, Y: 25 true, 6 debatable,
    8 false.
    """

    code = "GRAD006"
    never = (STEP,)
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a window counted from zero, and one that has no clause for the end."""
        for trace in module.traces:
            for loop in trace.training_loops():
                run = execution_of(trace, loop.path)
                test = _step_condition(loop)
                if (
                    test is not None
                    and run.windows(loop.optimizer)
                    and run.has_window
                    and run.is_certain
                    and not run.is_named
                    and _restarts_window(loop)
                ):
                    windows = run.windows(loop.optimizer)
                    yield from _judge_windows(module, loop, windows, test)


def _judge_windows(
    module: SourceModule, loop: TrainingLoop, windows: list[AccumulationWindow], test: ast.expr
) -> Iterator[At]:
    sizes = [len(each.backwards) for each in windows[:-1]]
    cleared = all(each.of("zero_grad") and each.is_accumulating for each in windows[1:-1])
    if len(sizes) < 2 or max(sizes) < 2 or not cleared:
        return
    if sizes[0] == 1 and sizes[1] > 1:
        yield At(test, "With `i % k == 0` the first step comes after one batch alone, not after k.", RISK)
    elif (
        windows[-1].backwards
        and not _is_stepped_after_loop(loop.trace, loop.path)
        and not _is_whole_number_of_windows(module, loop, sizes[1])
    ):
        yield At(test, "Where k does not divide the batches, those left over get no step in this loop.", RISK)


def _restarts_window(loop: TrainingLoop) -> bool:
    """Tell a loop that begins a window anew each time: one that is left open does not go on in the next epoch."""
    run, played = loop.path[-1].run, execution_of(loop.trace, loop.path)
    counters = played.state.asked & played.added_to.keys()
    if run is not None:
        return run.restarts and not counters
    return isinstance(loop.node, ast.For) and (not counters or _is_count_reset_each_epoch(loop, counters))


def _is_count_reset_each_epoch(loop: TrainingLoop, counters: set[str]) -> bool:
    """Tell whether what counts the batches gets a value in each epoch, or the gradients are cleared there."""
    epoch = next(iter(loop.outer_loops()), ())
    parents = execution_of(loop.trace, loop.path).contexts.index.parents
    around = [event for event in loop.trace.within(epoch, "count") if not event.inside(loop.path)]
    given = {event.subject for event in around if not isinstance(parents[event.node], ast.AugAssign)}
    cleared = bool(epoch) and any(event.loop_path() == epoch for event in loop.clears(epoch))
    return cleared or counters <= given


def _is_whole_number_of_windows(module: SourceModule, loop: TrainingLoop, size: int) -> bool:
    """Tell whether the loop is known to run a whole number of windows, by its range or its loader's batches."""
    source = loader_of_loop(module, loop.node) if isinstance(loop.node, ast.For) else None
    if source is not None and (times := num_batches(module, source)) is not None:
        return times % size == 0
    contexts, frame = execution_of(loop.trace, loop.path).contexts, loop.path[-1]
    call = getattr(frame.node, "iter", None)
    while isinstance(call, ast.Call) and dotted_name(call.func) in ("enumerate", "tqdm") and call.args:
        call = call.args[0]
    if not isinstance(call, ast.Call) or dotted_name(call.func) != "range":
        return False
    if len(call.args) == 1 and _is_modulus_of_step_condition(loop, call.args[0]):
        return True
    bounds = [contexts.value(LocatedExpression(each, frame.context or TOP)) for each in call.args]
    return all(isinstance(each, int) for each in bounds) and len(range(*bounds)) % size == 0


def _is_modulus_of_step_condition(loop: TrainingLoop, end: ast.expr) -> bool:
    """Tell `(i + 1) % k == 0` within `range(k)`: its last turn steps."""
    test = _step_condition(loop)
    parts = [each for each in walk(test) if isinstance(each, ast.BinOp)] if test is not None else []
    return any(isinstance(each.op, ast.Mod) and ast.dump(each.right) == ast.dump(end) for each in parts)


def _step_condition(loop: TrainingLoop) -> ast.expr | None:
    """Return the test under which the loop steps."""
    branches = [frame.node for frame in loop.steps[0].branches(loop.path)]
    return branches[-1].test if branches and isinstance(branches[-1], ast.If) else None


def _is_stepped_after_loop(trace: Trace, path: Path) -> bool:
    inside = [index for index, event in enumerate(trace.events) if event.inside(path)]
    return any(event.kind == "step" for event in trace.events[inside[-1] + 1 :])
