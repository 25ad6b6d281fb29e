# SPDX-License-Identifier: Apache-2.0
"""Fused SGD whose first step a GradScaler may skip."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, without_keyword
from truestep.doctor.source.values import argument, constant, literal


class MomentumOfSkippedStep(SourceCheck):
    """Fused SGD with momentum is stepped by a GradScaler.

    Why: when the scaler skips the very first step after an overflow (as it often does), torch 2.13 leaves
    the momentum buffer uninitialised, and the next step adds whatever the memory held.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)  # here
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()

    Fix: leave out fused=True, or set opt.state[p]["momentum_buffer"] = torch.zeros_like(p) first.
    """

    code = "AMP008"
    words = ("fused",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the constructor in a file that steps by a scaler and makes no buffers itself."""
        if "momentum_buffer" in module.text:
            return
        for call in module.calls("torch.optim.SGD"):
            momentum = argument(call, 2, "momentum")
            fused = literal(module, argument(call, None, "fused")) is True
            if not fused or momentum is None or constant(momentum) == 0:
                continue
            if any(trace.of("scaler_step") for trace in module.traces):
                yield At(call, "If the scaler skips the first step, the momentum starts from garbage.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the fused kernel."""
        return [without_keyword(module, node, "fused")]
