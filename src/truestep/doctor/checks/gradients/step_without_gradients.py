# SPDX-License-Identifier: Apache-2.0
"""A step on nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.training_actions import BACKWARD
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


class StepWithoutGradients(SourceCheck, Watcher):
    """An optimizer steps, but none of its parameters has a gradient.

    Why: nothing is learned. No loss goes backward, or the loss does not depend on these parameters (it was detached, or
    computed by another model).

    Bad:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            opt.step()  # here

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: where no backward() runs, call loss.backward() before step(). Where one does, give the optimizer the parameters of
    the model that computes the loss, and don't detach before backward().

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/075/main.py:16;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/075/original_code_snippet.py:11; beds C, E, I, P, R: 2
    true, 7 false.
    """

    code = "GRAD024"
    never = (BACKWARD,)
    words = (".step(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loop that applies a model and steps, in a program in which nothing goes backward."""
        if module.program.identifiers & {"backward", "grad", "manual_backward", "ascend", "autograd"}:
            return
        for trace in module.traces:
            for step in trace.of("step"):
                path = step.loop_path()
                if path and _calls_abstract_method(module, path[-1].node):
                    continue
                if path and trace.within(path, "forward", "zero_grad") and not trace.within(path, "unknown"):
                    yield At(step.node, "The loop steps, but nothing ever calls backward().")

    def __init__(self) -> None:
        self.empty: dict[int, int] = {}

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report the second step in a row without any gradient, if something went backward."""
        if not record.has_closure:
            yield from self._report_findings(record, place, record.num_steps)

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report the same of a step that goes backward itself, by a closure of the user's or of a library's."""
        if record.has_closure:
            yield from self._report_findings(record, place, record.num_steps - 1)

    def _report_findings(self, record: OptimizerRecord, place: Place, num_steps_before: int) -> Observations:
        key = id(record)
        has_gradients = any(each.grad is not None for each in record.parameters())
        trains = any(each.requires_grad for each in record.parameters())
        left_out = record.has_closure and not record.num_backwards  # a library leaves a batch out so
        if has_gradients or not trains or left_out or record.cleared_at is not None:
            self.empty[key] = 0
            return
        self.empty[key] = self.empty.get(key, 0) + 1
        if self.empty[key] == 2 and num_steps_before < 2 + record.num_stale_steps:
            number = sum(1 for _ in record.parameters())
            what = "backward() ran" if record.num_backwards else "no backward() ran"
            yield Observation(
                place,
                f"{what}, but none of the optimizer's {number} parameters has a gradient.",
                BUG,
                {"parameters": number, "backwards_since_last_step": record.num_backwards},
            )


def _calls_abstract_method(module: SourceModule, loop: ast.AST) -> bool:
    """Tell a loop that leaves a step to a method whose one body here raises: whoever derives from it goes backward."""
    called = [module.functions.target(each) for each in walk(loop) if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.FunctionDef) and isinstance(each.body[-1], ast.Raise) for each in called)
