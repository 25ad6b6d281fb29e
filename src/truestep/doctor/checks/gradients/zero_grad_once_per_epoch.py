# SPDX-License-Identifier: Apache-2.0
"""Gradients cleared in the outer loop only."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.events import Trace, TraceEvent, TrainingLoop
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import (
    Edits,
    SourceRewriteError,
    after,
    move_after,
    next_event,
    node_text,
)
from truestep.doctor.source.training_actions import CLEAR


class ZeroGradOncePerEpoch(SourceCheck):
    """The gradients are cleared in the outer loop, but the optimizer steps in the inner one.

    Why: within an epoch every step uses all earlier batches too.

    Bad:
        for epoch in range(3):
            opt.zero_grad()  # here
            for x, y in loader:
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Good:
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: move zero_grad() into the loop that calls step().

    Evidence: the plain form of row 3 of docs/mistakes.md; beds E, H, I, P, S, V, X, Y: 8 true, 3 debatable, 2
    false.
    """

    code = "GRAD003"
    never = (CLEAR,)
    words = ("zero_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clear that stands one loop too far out."""
        for trace in module.traces:
            for loop in trace.training_loops():
                path = loop.batch_path()
                clears = [event for each in loop.outer_loops(path) for event in loop.clears(each)]
                outer = [event for event in clears if not _is_clear_for_other_optimizer(trace, loop, event)]
                if not outer or loop.clears(path) or loop.of("unknown") or _is_left_after_step(loop):
                    continue
                here = [each for each in outer if not _is_clear_of_another_loop(trace, loop, each)]
                if here:
                    text = "The gradients are cleared once per outer loop, but stepped in the inner one."
                    yield At(here[0].node, text)
                else:
                    yield At(
                        loop.steps[0].node, "This loop never clears the gradients: another one alone does."
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Clear after the step."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            if node.args or node.keywords:  # of a scaler, or with a closure
                raise SourceRewriteError
            return [after(module, node, f"{node_text(module, node.func.value)}.zero_grad()")]
        return move_after(module, node, next_event(module, node, "step").node)


def _is_clear_of_another_loop(trace: Trace, loop: TrainingLoop, clear: TraceEvent) -> bool:
    """Tell what another training loop clears for its own steps, as that of another branch does."""
    trained = {each.node for world in trace.worlds or [trace] for each in world.training_loops()}
    others = trained.difference(frame.node for frame in loop.path)
    return any(frame.node in others for frame in clear.path)


def _is_clear_for_other_optimizer(trace: Trace, loop: TrainingLoop, clear: TraceEvent) -> bool:
    """Tell `generator.zero_grad()` behind the critic's loop: the next optimizer that steps is the generator's."""
    if clear.subject == loop.optimizer:
        return False
    if clear not in trace.order:  # of another way through the program: what follows there is not known
        return True
    later = trace.events[trace.order[clear] + 1 :]
    following = next((each for each in later if each.kind in ("step", "scaler_step")), None)
    return following is not None and following.subject not in (loop.optimizer, "")


def _is_left_after_step(loop: TrainingLoop) -> bool:
    """Tell whether the loop is left after its step: it was one update then."""
    statements = [
        each for each in getattr(loop.node, "body", []) if isinstance(each, (ast.Break, ast.Return))
    ]
    return bool(statements)
