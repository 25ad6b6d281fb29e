# SPDX-License-Identifier: Apache-2.0
"""The real schedule stepped for a plot."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, QUESTION, At, SourceCheck
from truestep.doctor.source.events import Path, Trace, TraceEvent
from truestep.doctor.source.module import SourceModule


class ScheduleUsedUp(SourceCheck):
    """A schedule is stepped in a loop that trains nothing, to see its rates.

    Why: it is used up: training then starts at its end, with the last rate.

    Bad:
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)
        rates = []
        for _ in range(4):
            sched.step()  # here
            rates.append(sched.get_last_lr()[0])
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        dummy = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        preview = torch.optim.lr_scheduler.StepLR(dummy, 2)
        rates = []
        for _ in range(4):
            rates.append(preview.get_last_lr()[0])
            dummy.step()
            preview.step()

    Fix: plot a throw-away copy with an optimizer of its own (truestep.plot_schedule does).

    Evidence: the plain form of row 13 of docs/mistakes.md; 186 repositories: said 2 times, not judged.
    """

    code = "SCHED005"
    words = ("append", "plot")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a schedule's step in a loop that reads its rate and steps no optimizer."""
        for trace in module.traces:
            for event in trace.of("schedule"):
                loops = event.loops()
                path = event.loop_path()
                if len(loops) != 1 or trace.within(path, "unknown", "backward", "grad", "forward", "learn"):
                    continue
                later = trace.events[trace.order[event] :]
                trains = any(each.kind in ("step", "backward") for each in later)
                stepped = {each.subject for each in trace.within(path, "step")}
                if stepped and not _are_optimizers_stepped_later(trace, later, path, stepped):
                    continue  # the pair was made to be looked at
                if any(
                    _reads_learning_rate(module, each, loops[0]) for each in module.method_calls("append")
                ):
                    yield At(
                        event.node,
                        "The loop steps the schedule and trains nothing: it is used up afterwards.",
                        BUG if trains else QUESTION,
                    )


def _are_optimizers_stepped_later(
    trace: Trace, later: list[TraceEvent], path: Path, optimizers: set[str]
) -> bool:
    """Tell whether one of these optimizers steps in a loop of its own, in which something goes backward."""
    steps = [each for each in later if each.kind == "step" and not each.inside(path)]
    return any(each.subject in optimizers and trace.within(each.loop_path(), "backward") for each in steps)


def _reads_learning_rate(module: SourceModule, call: ast.Call, loop: ast.AST) -> bool:
    return loop in module.ancestors(call) and any(
        word in ast.unparse(call) for word in ("get_last_lr", "param_groups", "get_lr")
    )
