# SPDX-License-Identifier: Apache-2.0
"""One optimizer's schedule, made for another optimizer."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.rewriting import Edits, replaced
from truestep.doctor.source.signatures import own_name

_PARTS = re.compile(r"^(.*?)_?([A-Za-z0-9]+)$")


class ScheduleOfAnotherOptimizer(SourceCheck):
    """The schedule of one of two optimizers is made with the other one.

    Why: one learning rate is scheduled twice, and the other stays as it was.

    Bad:
        opt_g = torch.optim.Adam(nn.Linear(4, 4).parameters())
        opt_d = torch.optim.Adam(nn.Linear(4, 1).parameters())
        sched_g = torch.optim.lr_scheduler.StepLR(opt_g, 10)
        sched_d = torch.optim.lr_scheduler.StepLR(opt_g, 10)  # here
        for step in range(100):
            opt_g.step()
            opt_d.step()
            sched_g.step()
            sched_d.step()

    Good:
        opt_g = torch.optim.Adam(nn.Linear(4, 4).parameters())
        opt_d = torch.optim.Adam(nn.Linear(4, 1).parameters())
        sched_g = torch.optim.lr_scheduler.StepLR(opt_g, 10)
        sched_d = torch.optim.lr_scheduler.StepLR(opt_d, 10)
        for step in range(100):
            opt_g.step()
            opt_d.step()
            sched_g.step()
            sched_d.step()

    Fix: give each schedule its own optimizer.
    """

    code = "SCHED010"
    words = ("lr_scheduler",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a schedule whose name ends as another optimizer's that gets no schedule at all."""
        made = [each for each in module.all(ast.Assign) if _given(module, each) is not None]
        given = {dotted(_given(module, each) or each.targets[0]) for each in made}
        for each in made:
            optimizer = _given(module, each)
            own = _own(module, each, optimizer) if optimizer is not None else None
            if own is not None and own not in given:
                yield At(
                    each,
                    f"It is made with {ast.unparse(optimizer or each)}, and {own} has no schedule.",
                    RISK,
                )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Give it the optimizer of its name."""
        optimizer = _given(module, node)
        assert optimizer is not None
        return [replaced(module, optimizer, _own(module, node, optimizer) or ast.unparse(optimizer))]


def _given(module: SourceModule, node: ast.Assign) -> ast.expr | None:
    """Return the optimizer for which an assignment makes a schedule."""
    is_schedule = isinstance(node.value, ast.Call) and module.kind(node.value) == "scheduler"
    arguments = node.value.args if isinstance(node.value, ast.Call) and is_schedule else []
    return arguments[0] if arguments and isinstance(arguments[0], ast.Name | ast.Attribute) else None


def _own(module: SourceModule, node: ast.Assign, given: ast.expr) -> str | None:
    """Return the optimizer that is to the schedule's name as the given one is to another's: opt_d of sched_d."""
    schedule, optimizer = (_PARTS.match(own_name(each) or "") for each in (node.targets[0], given))
    if schedule is None or optimizer is None or "_" not in (own_name(node.targets[0]) or ""):
        return None
    if schedule[2] == optimizer[2] or "_" not in (own_name(given) or ""):
        return None
    wanted = (dotted(given) or "").removesuffix(optimizer[2]) + schedule[2]
    others = [each for each in module.stores for target in _targets(each) if dotted(target) == wanted]
    return wanted if others and all(module.kind(each.value) == "optimizer" for each in others) else None


def _targets(node: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]
