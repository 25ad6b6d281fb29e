# SPDX-License-Identifier: Apache-2.0
"""A window that never closes."""

from collections.abc import Iterator

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.events import TrainingLoop
from truestep.doctor.source.execution import MAX_WINDOW, Execution, execution_of
from truestep.doctor.source.module import SourceModule


class StepTestNeverHolds(SourceCheck):
    """The test under which an optimizer steps holds in no batch: its counter never comes there.

    Why: the loop computes gradients, and no weight ever moves.

    Bad:
        for x, y in loader:
            batches = 0
            (F.cross_entropy(net(x), y) / 4).backward()
            batches += 1
            if batches == 4:
                opt.step()  # here
                opt.zero_grad()

    Good:
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Fix: count by enumerate(), or set the counter to 0 before the loop and after the step.
    """

    code = "GRAD062"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the step of a loop that was run for two windows, in every world, and never stepped."""
        for trace in module.traces:
            for loop in trace.training_loops():
                if all(_never_steps(each) for each in _in_all_worlds(loop)):
                    yield At(
                        loop.steps[0].node, "The counter that this step waits for never comes there.", BUG
                    )


def _in_all_worlds(loop: TrainingLoop) -> list[TrainingLoop]:
    """Return the loop, and all that train in another world at the same place."""
    traces = loop.trace.worlds or [loop.trace]
    return [each for trace in traces for each in trace.training_loops() if each.node is loop.node]


def _never_steps(loop: TrainingLoop) -> bool:
    """Tell whether a run that nothing was guessed for has backwards and no step, but for one in the first batch."""
    run = execution_of(loop.trace, loop.path)
    if not run.is_certain or run.is_named or not run.has_window or not _is_within_reach(run):
        return False
    happened = run.happened[: run.num_before_last]
    kinds = [event.kind for event in happened if event.kind in ("backward", "step")]
    num_steps = sum(event.subject == loop.optimizer for event in happened if event.kind == "step")
    is_stuck = num_steps == 1 and kinds[:2] == ["backward", "step"] and run.window > 1
    return kinds.count("backward") >= run.num_iterations - 1 and (num_steps == 0 or is_stuck)


def _is_within_reach(run: Execution) -> bool:
    """Tell whether all windows are of one size that was run, by counters that only this loop moves."""
    sizes = {each for each in run.sizes if each != 1}
    counted = {*run.driven, *run.added_to, *run.state.progress}
    return len(sizes) <= 1 and all(each <= MAX_WINDOW for each in sizes) and run.state.asked <= counted
