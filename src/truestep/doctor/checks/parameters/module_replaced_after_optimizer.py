# SPDX-License-Identifier: Apache-2.0
"""A layer replaced when the optimizer holds the old one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.core.wording import counted
from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import parts_given
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

AFTER = 4  # steps


class ModuleReplacedAfterOptimizer(SourceCheck, Watcher):
    """A layer of a model is replaced after the optimizer was made.

    Why: the optimizer still holds the old layer's parameters; the new ones are never trained.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        net.head = nn.Linear(8, 3)  # here
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        net.head = nn.Linear(8, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: build, move, replace; then make the optimizer (or opt.add_param_group).

    Evidence: the plain form of row 54 of docs/mistakes.md.
    """

    code = "PARAM005"
    words = ("arameters()",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `net.x = nn.Layer(...)` after an optimizer over net, in the same block."""
        for assignment in module.all(ast.Assign):
            target = assignment.targets[0]
            if not (
                isinstance(target, ast.Attribute | ast.Subscript) and _is_layer(module, assignment.value)
            ):
                continue
            base = target.value
            while isinstance(base, ast.Attribute) and module.kind(base) not in ("module", "ddp"):
                base = base.value
            made = _optimizer_before(module, dotted(base), assignment)
            if made is not None and dotted(base) != "self":
                yield At(
                    assignment,
                    f"{ast.unparse(target)} is replaced after the optimizer was made on line {made.lineno}.",
                )

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report parameters that belong to no model any more, beside some of a model that still do."""
        if record.num_steps != AFTER:
            return
        models = [model for model in history.models if history.is_trained(model)]
        known = {id(each) for model in models for each in model.parameters()}
        lost = [each for each in record.parameters() if id(each) not in known and each.grad is None]
        held = {id(each) for every in history.records.values() for each in every.parameters()}
        new = [name for model in models for name, each in model.named_parameters() if id(each) not in held]
        if models and lost and new:
            text = f"The optimizer holds {counted(len(lost), 'parameter')} of a replaced layer, not {', '.join(new[:4])}."
            yield Observation(record.place, text, evidence={"replaced": len(lost), "not_optimized": new[:6]})


def _is_layer(module: SourceModule, value: ast.expr) -> bool:
    name = module.qualify(value.func) if isinstance(value, ast.Call) else None
    return bool(name and name.startswith("torch.nn.") and name.count(".") == 2 and not name.endswith("Loss"))


def _optimizer_before(module: SourceModule, name: str | None, assignment: ast.Assign) -> ast.Call | None:
    block = module.parents[assignment]
    for found, call in module.calls_matching("torch.optim."):
        if (
            found.startswith("torch.optim.lr_scheduler")
            or module.parents.get(module.statement(call)) is not block
        ):
            continue
        holds = any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "parameters"
            and dotted(node.func.value) == name
            for node in parts_given(module, call)
        )
        if holds and call.lineno < assignment.lineno and not _made_anew(module, assignment):
            return call
    return None


def _made_anew(module: SourceModule, assignment: ast.Assign) -> bool:
    """A second optimizer (or add_param_group) after the replacement repairs it."""
    later = [each for _, each in module.calls_matching("torch.optim.") if each.lineno > assignment.lineno]
    groups = module.method_calls("add_param_group")
    return any(not (module.qualify(each.func) or "").startswith("torch.optim.lr_") for each in later) or bool(
        groups
    )
