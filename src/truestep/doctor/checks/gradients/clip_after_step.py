# SPDX-License-Identifier: Apache-2.0
"""A clip that comes too late, or too early."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.frames import LocatedExpression
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import method_of, receiver_of, walk
from truestep.doctor.source.optimizer_model_links import is_of_other_models
from truestep.doctor.source.rewriting import Edits, last_event, move_after, move_before, next_event
from truestep.doctor.source.value_origins import value_origins
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    import torch

    from truestep.doctor.runtime.history import WatchHistory

_EARLY = "The gradients are clipped before backward(): there is nothing to clip yet."


class ClipAfterStep(SourceCheck, Watcher):
    """Gradients are clipped after the optimizer has used them, or before backward() has computed them.

    Why: the step is taken with unclipped gradients; the clip changes nothing.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # here

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()

    Fix: clip between backward() and step().

    Evidence: the plain form of row 15 of docs/mistakes.md; 186 repositories, beds H, K, L, M, Q, S, U, W, Y: 18
    true, 0 false.
    """

    code = "GRAD008"
    words = ("clip_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clip with a step, and no backward, straight before it and no step that could use it after it."""
        yield from (At(each.node, _EARLY) for each in _clips_before_backward(module))
        for trace in module.traces:
            events = trace.of("backward", "step", "clip", "zero_grad")
            for index, event in enumerate(events):
                before = events[index - 1] if index else None
                if event.kind != "clip" or before is None or before.kind != "step":
                    continue
                path = event.loop_path()
                if (
                    before.loop_path() == path
                    and not _is_clip_used_by_later_step(module, trace, event, events[index + 1 :])
                    and not event.branches(path)
                    and not before.branches(path)
                ):
                    yield At(
                        event.node, "The gradients are clipped after step(): this update was not clipped."
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Clip between the two."""
        if any(each.node is node for each in _clips_before_backward(module)):
            return move_after(module, node, next_event(module, node, "backward").node)
        return move_before(module, node, last_event(module, node, "step").node)

    def on_clip(self, history: WatchHistory, parameters: list[torch.Tensor], place: Place) -> Observations:
        """Report gradients that a step has used already and no backward has touched since, and a clip that finds none."""
        if (
            parameters
            and all(each.grad is None for each in parameters)
            and history.optimizers_holding(parameters)
        ):
            text = f"None of the {len(parameters)} parameters has a gradient yet."
            yield Observation(place, text, evidence={"parameters": len(parameters)})
        used = [
            each
            for each in history.optimizers_holding(parameters)
            if each.num_steps and not each.num_backwards
        ]
        if used and any(each.unchanged_since_mark() for each in used):
            yield Observation(
                place, "The gradients are clipped after step().", evidence={"step": history.num_steps}
            )


def _is_clip_used_by_later_step(
    module: SourceModule, trace: Trace, clip: TraceEvent, later: list[TraceEvent]
) -> bool:
    """Tell whether a step in the loop may be taken with what was clipped: its gradients are not cleared first, or not its own."""
    cleared: list[TraceEvent] = []
    path = clip.loop_path()
    for event in (each for each in later if each.inside(path)):
        if event.kind == "zero_grad" and event.subject:
            cleared.append(event)
        elif event.kind == "step" and not _is_clip_of_other_models(module, trace, clip, event):
            if not any(each.subject == event.subject and event.inside(each.path) for each in cleared):
                return True
    return False


def _is_clip_of_other_models(module: SourceModule, trace: Trace, clip: TraceEvent, step: TraceEvent) -> bool:
    """Tell whether an optimizer holds none of the models whose parameters are clipped, whichever of several they are."""
    contexts = trace.contexts
    if contexts is None or clip.context is None:
        return False
    calls = [each for each in walk(clip.node) if isinstance(each, ast.Call)]
    clipped: list[ast.expr | None] = []
    for net in (receiver_of(each) for each in calls if method_of(each) == "parameters"):
        if net is not None:
            made = contexts.origin(LocatedExpression(net, clip.context)).node
            clipped += [net] if isinstance(made, ast.Call) else value_origins(module, net)
    return bool(clipped) and all(
        is_of_other_models(contexts, step, replace(clip, receiver=each)) for each in clipped
    )


def _clips_before_backward(module: SourceModule) -> Iterator[TraceEvent]:
    """Yield each clip whose next neighbours are backward and step, and that finds no gradient from before."""
    for trace in module.traces:
        for clip in trace.of("clip"):
            path = clip.loop_path()
            if path and not clip.branches(path):
                inside = [
                    each for each in trace.of("backward", "step", "clip", "zero_grad") if each.inside(path)
                ]
                index = inside.index(clip)
                match [each for each in inside[index + 1 :] if each.kind != "zero_grad"][:2]:
                    case [TraceEvent(kind="backward"), TraceEvent(kind="step") as step]:
                        if _is_nothing_to_clip(inside[:index], clip, step):
                            yield clip


def _is_nothing_to_clip(before: list[TraceEvent], clip: TraceEvent, step: TraceEvent) -> bool:
    """Tell whether no backward came yet, or a step used each, and what is clipped has been cleared since."""
    used = next((index for index, each in enumerate(reversed(before)) if each.kind == "backward"), None)
    if used is None:
        return True
    since = before[len(before) - used :]
    path = clip.loop_path()
    clears = [each for each in since if each.kind == "zero_grad" and not each.branches(path)]
    clipped = ast.unparse(clip.node)
    return any(each.kind == "step" for each in since) and any(
        each.subject == step.subject != ""
        or (each.receiver is not None and f"({ast.unparse(each.receiver)}.parameters()" in clipped)
        for each in clears
    )
