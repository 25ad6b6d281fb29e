# SPDX-License-Identifier: Apache-2.0
"""A loss that is divided for an accumulation that does not happen."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.accumulation_windows import AccumulationWindow
from truestep.doctor.source.execution import Execution, execution_of
from truestep.doctor.source.frames import TOP
from truestep.doctor.source.library_accumulators import accumulating, has_accumulation_option, num_batches
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.training_actions import ACCUMULATE


class AccumulationNeverEntered(SourceCheck):
    """An Accelerator has gradient_accumulation_steps, and the optimizer steps at every batch all the same.

    Why: backward divides the loss by the number of steps: each step is too short by it, as if the learning rate were.

    Bad:
        from accelerate import Accelerator

        accelerator = Accelerator(gradient_accumulation_steps=4)
        net, opt, loader = accelerator.prepare(net, opt, loader)
        for x, y in loader:  # here
            loss = F.cross_entropy(net(x), y)
            accelerator.backward(loss)
            opt.step()
            opt.zero_grad()

    Good:
        from accelerate import Accelerator

        accelerator = Accelerator(gradient_accumulation_steps=4)
        net, opt, loader = accelerator.prepare(net, opt, loader)
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = F.cross_entropy(net(x), y)
                accelerator.backward(loss)
                opt.step()
                opt.zero_grad()

    Fix: with accelerator.accumulate(net): around the batch, and accelerator.prepare(optimizer) before.

    Evidence: 186 repositories: 2 true, 1 false.
    """

    code = "GRAD046"
    never = (ACCUMULATE,)
    words = ("gradient_accumulation",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loop in which each step comes after one backward, whose loss a library divides."""
        for trace in module.traces:
            for loop in trace.training_loops():
                run = execution_of(trace, loop.path)
                windows = [each for each in run.windows(loop.optimizer) if each.step is not None]
                alone = bool(windows) and all(len(each.backwards) == 1 for each in windows)
                if not alone or not run.is_certain or not _is_accumulation_configured(run, windows[0]):
                    continue
                if run.has_window:
                    text = (
                        "It was not prepared: it steps at every batch, and the loss is divided for several."
                    )
                    yield At(loop.steps[0].node, text, RISK)
                else:
                    text = "The loss is divided for an accumulation that this loop does not enter."
                    yield At(loop.node, text, RISK)


def _is_accumulation_configured(run: Execution, window: AccumulationWindow) -> bool:
    """Tell whether an accumulating object was told of several batches, or of a number that is out of sight."""
    backward = window.backwards[0]
    if not isinstance(backward.node, ast.Call):
        return False
    found = accumulating(run.contexts, backward.node.func, backward.context or TOP)
    is_told = found is not None and isinstance(found[1].node, ast.Call) and has_accumulation_option(found)
    return is_told and found is not None and num_batches(run.contexts, found) != 1
