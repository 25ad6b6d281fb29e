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
        """Report a scaler's step in a file that nowhere updates a scaler."""
        updates = [call for each in module.linked for call in each.method_calls("update")]
        updated = [call for call in updates if module.kind(_receiver(call)) == "scaler"]
        for trace in module.traces:
            for event in trace.of("scaler_step"):
                if not updated and not trace.of("unknown"):
                    yield At(event.node, "scaler.step() without scaler.update().")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Update after the step."""
        return [after(module, node, f"{text_of(module, node.func.value)}.update()")]


def _receiver(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)
    return call.func.value
