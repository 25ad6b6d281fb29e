# SPDX-License-Identifier: Apache-2.0
"""Clipping gradients that still carry the scale."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.protocol_calls import Protocol
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, before, next_event, node_text
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.training_actions import UNSCALE


class ClipBeforeUnscale(SourceCheck):
    """Gradients of a scaled loss are clipped before scaler.unscale_().

    Why: they are still multiplied by the scale (65536 at first), so the clip cuts nearly all of every
    update away.

    Bad:
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # here
            scaler.step(opt)
            scaler.update()

    Good:
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()

    Fix: call scaler.unscale_(optimizer) between backward() and the clip.

    Evidence: found in the wild (docs/wild.md); Project-MONAI/tutorials b3c6c998
    competitions/MICCAI/surgtoolloc/classification_files/train.py:184; corpus, 186 repositories, beds I, N, R,
    S, T, U, W: 15 true, 0 false.
    """

    code = "AMP001"
    never = (UNSCALE,)
    words = ("clip_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clip between a scaled backward and scaler.step with no unscale_ before it."""
        for trace in module.traces:
            for clip in trace.of("clip"):
                if _is_loss_scaled_before(module, trace, clip) and any(
                    step.path == clip.path or step.loop_path() == clip.loop_path()
                    for step in _scaler_steps_after(trace, clip)
                ):
                    yield At(
                        clip.node,
                        "The gradients are clipped while they still carry the loss scale.",
                    )
                elif _is_followed_by_unscale(module, clip.node):
                    yield At(
                        clip.node, "The gradients are clipped, and their scale is taken off after that.", RISK
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Unscale first, where the step is as certain as the clip: twice in one window raises."""
        step = next_event(module, node, "scaler_step").node
        if module.enclosing(node, ast.If) is not module.enclosing(step, ast.If):
            raise SourceRewriteError
        assert isinstance(step, ast.Call)
        scaler, optimizer = node_text(module, step.func).rpartition(".")[0], node_text(module, step.args[0])
        return [before(module, node, f"{scaler}.unscale_({optimizer})")]


def _is_followed_by_unscale(module: SourceModule, clip: ast.AST) -> bool:
    """Tell whether the next statements of a block take off the scale, before anything steps or goes backward."""
    statement = module.statement(clip)
    block = getattr(module.parents[statement], "body", [])
    later = block[block.index(statement) + 1 :] if isinstance(block, list) and statement in block else []
    for each in later:
        calls = [own_name(part.func) or "" for part in walk(each) if isinstance(part, ast.Call)]
        if any(name.startswith("unscale") for name in calls):
            return True
        if any("step" in name or name in ("backward", "zero_grad") for name in calls):
            return False
    return False


def _is_loss_scaled_before(module: SourceModule, trace: Trace, clip: TraceEvent) -> bool:
    before = trace.events[: trace.events.index(clip)]
    for event in reversed(before):
        if event.kind == "unscale":
            return False
        if event.kind == "backward":
            return Protocol(module).is_scaled(event.receiver)
    return False


def _scaler_steps_after(trace: Trace, clip: TraceEvent) -> list[TraceEvent]:
    return [event for event in trace.events[trace.events.index(clip) :] if event.kind == "scaler_step"]
