# SPDX-License-Identifier: Apache-2.0
"""A clip that comes too early."""

from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule


class ClipBeforeBackward(SourceCheck):
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
