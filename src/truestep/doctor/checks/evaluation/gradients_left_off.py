# SPDX-License-Identifier: Apache-2.0
"""Gradients switched off for good."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.actions import SWITCH_GRADIENTS_ON
from truestep.doctor.source.events import TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, literal


class GradientsLeftOff(SourceCheck):
    """set_grad_enabled(False) is called in the loop over epochs and never undone.

    Why: it holds until something switches gradients on again: the next epoch's backward() raises, or
    trains only what made its graph before.

    Bad:
        for epoch in range(10):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            torch.set_grad_enabled(False)  # here
            right = sum((net(x).argmax(1) == y).sum() for x, y in test_loader)

    Good:
        for epoch in range(10):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            net.eval()
            with torch.no_grad():
                right = sum((net(x).argmax(1) == y).sum() for x, y in test_loader)
            net.train()

    Fix: `with torch.no_grad():`, which ends by itself.

    Evidence: the plain form of row 29 of docs/mistakes.md.
    """

    code = "EVAL017"
    never = (SWITCH_GRADIENTS_ON,)
    words = ("set_grad_enabled",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the statement in a loop that trains, if the trace has no other call of it."""
        for trace in module.traces:
            switches = trace.of("grad_mode")
            off = [each for each in switches if self._turns_gradients_off(module, each)]
            if not off or len(off) != len(switches):
                continue
            for each in off:
                if any(each.inside(path) for loop in trace.training_loops() for path in loop.outer_loops()):
                    yield At(each.node, "Nothing switches gradients on again for the next epoch.")

    def _turns_gradients_off(self, module: SourceModule, event: TraceEvent) -> bool:
        call = event.node
        stands_alone = isinstance(module.parents[call], ast.Expr)
        return (
            stands_alone
            and isinstance(call, ast.Call)
            and literal(module, argument(call, 0, "mode")) is False
        )
