# SPDX-License-Identifier: Apache-2.0
"""empty_cache in the loop."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, removed


class CacheEmptiedEveryStep(SourceCheck):
    """torch.cuda.empty_cache() is called in every iteration.

    Why: it frees nothing that is alive; the next step asks the driver for the same memory again, slowly.

    Bad:
        for x, y in loader:
            step(x, y)
            torch.cuda.empty_cache()  # here

    Good:
        for x, y in loader:
            step(x, y)

    Fix: drop it; delete references, look at torch.cuda.memory_summary().
    """

    code = "MEM003"
    words = ("empty_cache",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it where it always runs in the innermost loop that also does other work per batch."""
        for trace in module.traces:
            for event in trace.of("empty_cache"):
                loops = event.loops()
                over_epochs = bool(loops) and "epoch" in getattr(getattr(loops[-1], "target", None), "id", "")
                if loops and not over_epochs and not event.branches(event.loop_path()):
                    yield At(event.node, "The cache is emptied in every iteration.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the statement."""
        return [removed(module, node)]
