# SPDX-License-Identifier: Apache-2.0
"""A target network that stays at its start."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.source.actions import FOLLOW
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.uses import reads_followed

_NAME = re.compile(r"(^|_)(target|ema)(_|$)|^(target|ema)(net|model)?$", re.IGNORECASE)


class TargetNeverUpdated(SourceCheck):
    """A target or EMA network is copied once and never updated.

    Why: the targets come from the untrained copy for ever.

    Bad:
        target_net = copy.deepcopy(net)  # here
        for x, y in loader:
            opt.zero_grad()
            F.mse_loss(net(x), target_net(x).detach()).backward()
            opt.step()

    Good:
        target_net = copy.deepcopy(net)
        for x, y in loader:
            opt.zero_grad()
            F.mse_loss(net(x), target_net(x).detach()).backward()
            opt.step()
            target_net.load_state_dict(net.state_dict())

    Fix: load_state_dict every so many steps, or lerp_ each parameter towards the trained one.

    Evidence: the plain form of row 66 of docs/mistakes.md; bed B: 0 true, 2 debatable, 0 false.
    """

    code = "PARAM022"
    never = (FOLLOW,)
    words = ("deepcopy",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a deep copy so named that a training loop applies and nothing changes."""
        for statement in module.all(ast.Assign):
            name = dotted(statement.targets[0]) or ""
            copied = isinstance(statement.value, ast.Call) and module.qualify(statement.value.func) in (
                "copy.deepcopy",
            )
            if copied and _NAME.search(name.rsplit(".", 1)[-1]) and self._only_applied(module, name):
                yield At(statement, f"{name!r} is applied, and nothing ever updates it.", QUESTION)

    def _only_applied(self, module: SourceModule, name: str) -> bool:
        """Each use but for the assignment is a call, or a change of mode."""
        uses = [use for each in module.reads(name) for use in reads_followed(module, each)]
        trains = any(trace.training_loops() for trace in module.traces)
        applied = [each for each in uses if module.index.is_called(each)]
        quiet = ("eval", "train", "requires_grad_", "to", "cuda")
        rest = [each for each in uses if each not in applied and _method(module, each) not in quiet]
        taken = [each for each in applied if not _is_dropped(module, each)]
        return trains and bool(taken) and not rest


def _is_dropped(module: SourceModule, applied: ast.expr) -> bool:
    """Tell `_ = target(x)`: applied only to be made ready, and its result is nobody's target."""
    statement, call = module.statement(applied), module.parents[applied]
    names = [dotted(each) or "" for each in getattr(statement, "targets", ())]
    alone = isinstance(statement, ast.Expr) and statement.value is call
    return alone or (bool(names) and all(set(each) == {"_"} for each in names))


def _method(module: SourceModule, node: ast.expr) -> str | None:
    parent = module.parents[node]
    return parent.attr if isinstance(parent, ast.Attribute) else None
