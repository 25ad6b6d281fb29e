# SPDX-License-Identifier: Apache-2.0
"""retain_graph=True at the only backward."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, without_keyword
from truestep.doctor.source.values import argument, constant


class GraphKeptWithoutNeed(SourceCheck):
    """backward(retain_graph=True) where no second backward goes through the same graph.

    Why: each iteration's graph stays in memory as long as anything refers to it, and a real mistake
    (an old state carried into a new step) is silenced instead of reported.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward(retain_graph=True)  # here
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()

    Fix: drop retain_graph; if torch then says "backward a second time", detach what is carried over.

    Evidence: THUDM/CogDL 281f4742 examples/GRB/attack/injection/speit.py:381; corpus: 1 true, 0 false; bed
    B: 1 true, 0 false; 186 repositories: 3 true, 1 debatable, 0 false.
    """

    code = "GRAD011"
    rewrites = "safe"
    words = ("retain_graph",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it at the last backward of an iteration."""
        for trace in module.traces:
            for event in trace.of("backward"):
                given = (
                    argument(event.node, None, "retain_graph") if isinstance(event.node, ast.Call) else None
                )
                if constant(given) is True and event.loop_path() and _is_last(trace, event):
                    yield At(event.node, "The graph is kept after the last backward of the iteration.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the argument."""
        return [without_keyword(module, node, "retain_graph")]


def _is_last(trace: Trace, event: TraceEvent) -> bool:
    """No other backward, grad or forward hook may follow it in its loop, or in an inner one it stands in."""
    path = event.loop_path()
    inside = [
        each
        for each in trace.within(path, "backward", "grad", "unknown")
        if each.kind != "unknown" or each.subject != event.subject
    ]
    # without a forward in the loop, the graph may be one from before it: then each iteration needs it
    return bool(inside) and inside[-1] is event and bool(trace.within(path, "forward"))
