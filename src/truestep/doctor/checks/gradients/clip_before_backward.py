# SPDX-License-Identifier: Apache-2.0
"""A clip that comes too early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, moved_after, next_event
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    import torch

    from truestep.doctor.runtime.history import WatchHistory


class ClipBeforeBackward(SourceCheck, Watcher):
    """Gradients are clipped before backward() has computed them.

    Why: the clip sees no gradients (or those of the batch before); the step is not clipped.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # here
            loss.backward()
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()

    Fix: clip between backward() and step().

    Evidence: 186 repositories, beds H, K, M, Q, S, U: 11 true, 0 false.
    """

    code = "GRAD009"
    words = ("clip_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clip whose next neighbours are backward and step, with no backward before it."""
        for trace in module.traces:
            for clip in trace.of("clip"):
                path = clip.loop_path()
                if not path or clip.branches(path):
                    continue
                inside = [
                    each
                    for each in trace.events
                    if each.inside(path) and each.kind in ("backward", "step", "clip")
                ]
                index = inside.index(clip)
                kinds = [each.kind for each in inside[index + 1 :]]
                if not [each for each in inside[:index] if each.kind == "backward"] and kinds[:2] == [
                    "backward",
                    "step",
                ]:
                    yield At(
                        clip.node,
                        "The gradients are clipped before backward(): there is nothing to clip yet.",
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Clip after the backward."""
        return moved_after(module, node, next_event(module, node, "backward").node)

    def on_clip(self, history: WatchHistory, parameters: list[torch.Tensor], place: Place) -> Observations:
        """Report a clip that finds no gradient at all, where the parameters are being trained."""
        if parameters and all(each.grad is None for each in parameters) and history.holding(parameters):
            text = f"None of the {len(parameters)} parameters has a gradient yet."
            yield Observation(place, text, evidence={"parameters": len(parameters)})
