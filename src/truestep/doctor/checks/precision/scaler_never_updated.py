# SPDX-License-Identifier: Apache-2.0
"""A GradScaler whose scale never moves."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, after, text_of
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import argument

_KEEPS = re.compile(r"save|load|checkpoint|log")


class ScalerNeverUpdated(SourceCheck):
    """scaler.step() is called, but never scaler.update(), or only with a scale chosen by hand.

    Why: the scale never adapts, and torch refuses the second step ("update() has not been called").

    Bad:
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.step(opt)  # here

    Good:
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.step(opt)
            scaler.update()

    Fix: call scaler.update() once, after the last scaler.step() of the iteration.
    """

    code = "AMP003"
    words = ("scaler.step", "GradScaler")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a scaler's step where neither its file nor any world of its program updates a scaler."""
        for trace in module.traces:
            for event in trace.of("scaler_step"):
                updates = [
                    call
                    for call in module.home(event.node).method_calls("update")
                    if module.kind(_receiver(call)) == "scaler"
                ]
                by_hand = bool(updates) and all(_sets_scale(module, call) for call in updates)
                ever = [
                    each for each in trace.ever((), "scaler_update") if not _sets_scale(module, each.node)
                ]
                handed_on = any(_may_update(module, each.node) for each in trace.of("unknown"))
                if (not updates or by_hand) and not ever and not handed_on:
                    text = "scaler.update() only sets a scale now and then." if by_hand else ""
                    yield At(event.node, f"scaler.step() without scaler.update(). {text}".strip())

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Update after the step."""
        return [after(module, node, f"{text_of(module, node.func.value)}.update()")]


def _receiver(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def _sets_scale(module: SourceModule, node: ast.AST) -> bool:
    """`scaler.update(2 * scale)`, beside the update that each step needs; with None it is that update."""
    given = argument(node, 0, "new_scale") if isinstance(node, ast.Call) else None
    if given is None:
        return isinstance(node, ast.Call) and bool(node.args or node.keywords)
    values = [given, *module.definitions(given)]
    return not any(isinstance(each, ast.Constant) and each.value is None for each in values)


def _may_update(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a call out of sight is given the scaler, or an object that may hold it, and is not for saving."""
    if not isinstance(node, ast.Call) or _KEEPS.search(own_name(node.func) or ""):
        return False
    given = [*node.args, *(word.value for word in node.keywords)]
    return any(
        module.kind(each) in ("scaler", None) for each in given if isinstance(each, ast.Name | ast.Attribute)
    )
