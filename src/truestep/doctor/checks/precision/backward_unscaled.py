# SPDX-License-Identifier: Apache-2.0
"""A loss that goes backward unscaled beside a scaled one."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.events import TraceEvent, exclusive
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.protocol import Protocol
from truestep.doctor.source.values import value_origins


class BackwardUnscaled(SourceCheck):
    """Of the losses of one step some are scaled by the GradScaler before backward(), and one is not.

    Why: the step divides all gradients by the scale, some 65,536 at first: this loss has next to no effect.

    Bad:
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            out = net(x)
            scaler.scale(F.cross_entropy(out, y)).backward(retain_graph=True)
            out.pow(2).mean().backward()  # here
            scaler.step(opt)
            scaler.update()

    Good:
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            out = net(x)
            loss = F.cross_entropy(out, y) + out.pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()

    Fix: scaler.scale(loss).backward() for each of them.
    """

    code = "AMP012"
    words = ("caler",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a backward without scale() between two updates of the scaler, where another one has it."""
        protocol = Protocol(module)
        for trace in module.traces:
            for step in trace.of("scaler_step"):
                window = _before(trace.events[: trace.order[step]], step)
                scaled = [each for each in window if protocol.is_scaled(each.receiver)]
                for backward in window if scaled else ():
                    apart = any(exclusive(backward, each) for each in [*scaled, step])
                    if backward not in scaled and _is_in_sight(module, backward) and not apart:
                        yield At(
                            backward.node,
                            "This loss goes backward unscaled, and its gradients are unscaled too.",
                        )


def _before(events: list[TraceEvent], step: TraceEvent) -> list[TraceEvent]:
    """Return the backwards in the loop of a step since the step or the clear before it, of whichever optimizer."""
    found: list[TraceEvent] = []
    for each in reversed(events):
        if each.kind in ("step", "scaler_step", "scaler_update", "zero_grad") or not each.inside(
            step.loop_path()
        ):
            break
        if each.kind == "backward":
            found.append(each)
    return found


def _is_in_sight(module: SourceModule, backward: TraceEvent) -> bool:
    """Tell whether what goes backward is computed in sight: a name of a `with` may hold what was scaled."""
    origins = list(value_origins(module, backward.receiver)) if backward.receiver is not None else []
    return bool(origins) and all(isinstance(each, ast.Call | ast.BinOp) for each in origins)
