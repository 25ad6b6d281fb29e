# SPDX-License-Identifier: Apache-2.0
"""A schedule that never moves."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


class SchedulerNeverStepped(SourceCheck):
    """A learning-rate schedule is made and never stepped.

    Why: the rate stays what it was at the start.

    Bad:
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)  # here
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        sched = torch.optim.lr_scheduler.StepLR(opt, 2)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            sched.step()

    Fix: scheduler.step() per epoch (or per batch, as its numbers mean).
    """

    code = "SCHED002"
    words = ("lr_scheduler",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report one whose name is never read again."""
        for name, call in module.calls_matching("torch.optim.lr_scheduler."):
            target = module.statement(call)
            if not isinstance(target, ast.Assign) or target.value is not call or name.endswith("LRScheduler"):
                continue
            stored = dotted(target.targets[0])
            if stored is None or not any(trace.training_loops() for trace in module.traces):
                continue
            last = stored.rsplit(".", 1)[-1]
            reads = [node for file in module.linked for node in file.all(ast.Name, ast.Attribute)]
            read = [node for node in reads if _is_read(node, last)]
            if not read:
                yield At(call, f"{stored!r} is made and never used: the learning rate stays as it is.")


def _is_read(node: ast.AST, name: str) -> bool:
    """Tell whether something of this name is read, whatever it is an attribute of."""
    loaded = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    return loaded and (dotted(node) or "").rsplit(".", 1)[-1] == name
