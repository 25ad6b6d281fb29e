# SPDX-License-Identifier: Apache-2.0
"""empty_cache in the loop."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.events import Path, Trace
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.rewriting import Edits, remove_statement


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

    Evidence: the plain form of row 89 of docs/mistakes.md; 186 repositories: said 7 times, not judged.
    """

    code = "MEM003"
    rewrites = "safe"
    words = ("empty_cache",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it where it always runs in the innermost loop that also does other work per batch."""
        for trace in module.traces:
            for event in trace.of("empty_cache"):
                path = event.loop_path()
                called = any(frame.kind == "call" for frame in event.path[len(path) :])
                if (
                    path
                    and not called
                    and not _has_batch_loop_inside(trace, path)
                    and not event.branches(path)
                ):
                    yield At(event.node, "The cache is emptied in every iteration.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the statement."""
        return [remove_statement(module, node)]


def _has_batch_loop_inside(trace: Trace, path: Path) -> bool:
    """Tell whether batches are gone through inside of this loop: then it is one over epochs."""
    inner = [node for node in walk(path[-1].node) if isinstance(node, (ast.For, ast.While))]
    deeper = [each for each in trace.events if each.inside(path) and each.loop_path() != path]
    return len(inner) > 1 or bool(deeper)
