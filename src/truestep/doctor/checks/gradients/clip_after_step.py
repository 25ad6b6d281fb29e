# SPDX-License-Identifier: Apache-2.0
"""A clip that comes too late, or too early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.events import Path, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, last_event, move_after, move_before, next_event
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
                    and not _is_clip_used_by_later_step(events[index + 1 :], path)
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


def _is_clip_used_by_later_step(later: list[TraceEvent], path: Path) -> bool:
    """Tell whether a step in the loop may be taken with what was clipped: it is not, where its gradients are cleared first."""
    cleared: list[TraceEvent] = []
    for event in (each for each in later if each.inside(path)):
        if event.kind == "zero_grad" and event.subject:
            cleared.append(event)
        elif event.kind == "step":
            if not any(each.subject == event.subject and event.inside(each.path) for each in cleared):
                return True
    return False


def _clips_before_backward(module: SourceModule) -> Iterator[TraceEvent]:
    """Yield each clip whose next neighbours are backward and step, with no backward before it."""
    for trace in module.traces:
        for clip in trace.of("clip"):
            path = clip.loop_path()
            if path and not clip.branches(path):
                inside = [each for each in trace.of("backward", "step", "clip") if each.inside(path)]
                kinds = [each.kind for each in inside]
                index = inside.index(clip)
                if "backward" not in kinds[:index] and kinds[index + 1 :][:2] == ["backward", "step"]:
                    yield clip
