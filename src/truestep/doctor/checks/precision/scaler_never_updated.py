# SPDX-License-Identifier: Apache-2.0
"""A GradScaler whose scale never moves."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, after, text_of


class ScalerNeverUpdated(SourceCheck):
    """scaler.step() is called, but never scaler.update().

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
                updates = module.home(event.node).method_calls("update")
                updated = any(module.kind(_receiver(call)) == "scaler" for call in updates)
                if not updated and not trace.ever((), "scaler_update") and not trace.of("unknown"):
                    yield At(event.node, "scaler.step() without scaler.update().")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Update after the step."""
        return [after(module, node, f"{text_of(module, node.func.value)}.update()")]


def _receiver(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)
    return call.func.value
