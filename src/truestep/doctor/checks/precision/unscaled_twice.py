# SPDX-License-Identifier: Apache-2.0
"""unscale_ a second time before update."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, removed


class UnscaledTwice(SourceCheck):
    """scaler.unscale_() is called twice for one optimizer before scaler.update().

    Why: torch raises RuntimeError at the second call.

    Bad:
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.unscale_(opt)
            scaler.unscale_(opt)  # here
            scaler.step(opt)
            scaler.update()

    Good:
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.unscale_(opt)
            scaler.step(opt)
            scaler.update()

    Fix: unscale each optimizer once per update.
    """

    code = "AMP004"
    words = ("unscale_",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the second of two that follow each other on one path."""
        for trace in module.traces:
            events = trace.of("unscale", "scaler_update", "scaler_step")
            for before, event in pairwise(events):
                same = before.kind == event.kind == "unscale" and before.subject == event.subject
                if same and before.path == event.path and before.subject != "?":
                    yield At(event.node, "unscale_() is called a second time before update().")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the second."""
        return [removed(module, node)]
