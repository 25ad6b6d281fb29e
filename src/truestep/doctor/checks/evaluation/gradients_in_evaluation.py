# SPDX-License-Identifier: Apache-2.0
"""Evaluating with the graph recorded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.training_actions import LEAVE_GRADIENTS_OUT
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import ModelApplication, WatchHistory

OFF = functions("switches gradients off", "switches gradients")


class GradientsInEvaluation(SourceCheck, Watcher):
    """A model in eval mode is applied in a loop without no_grad().

    Why: the graph of every batch is built for nothing: more memory, and slower.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        for x, y in test_loader:
            correct = (net(x).argmax(1) == y).sum()  # here

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.inference_mode():
            for x, y in test_loader:
                correct = (net(x).argmax(1) == y).sum()

    Fix: with torch.inference_mode(): (or torch.no_grad()).

    Evidence: MorvanZhou/PyTorch-Tutorial dbe154a9 tutorial-contents/401_CNN.py:117;
    MorvanZhou/PyTorch-Tutorial dbe154a9 tutorial-contents/402_RNN_classifier.py:96; 186 repositories: said
    112 times, not judged.
    """

    code = "EVAL004"
    never = (LEAVE_GRADIENTS_OUT,)
    words = ("eval()", "train(False)")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a forward after eval() in a loop that has gradients on and does not use them."""
        off = {
            id(each)
            for each in module.calls("torch.set_grad_enabled")
            if not isinstance(module.parents[each], ast.withitem)
        }
        for trace in module.traces:
            seen: set[str] = set()
            for forward in trace.of("forward"):
                mode = _last_mode_event(trace, forward)
                if mode is None or not forward.loops() or off or forward.subject in seen:
                    continue
                used = trace.within(forward.loop_path(), "backward", "grad", "step")
                if (
                    mode.kind == "eval"
                    and not used
                    and not are_gradients_off(module, forward)
                    and not mode.branches(forward.path[:0])
                ):
                    seen.add(forward.subject)
                    yield At(
                        forward.node,
                        "The model is evaluated without no_grad(): autograd records a graph that nothing uses.",
                        ADVICE,
                    )

    def on_evaluation(self, history: WatchHistory, applied: list[ModelApplication]) -> Observations:
        """Report a trained model that is evaluated with its graph."""
        for each in applied:
            if each.recorded and not each.training and history.is_trained(each.model):
                text = "The model is evaluated without no_grad(): autograd recorded a graph, and no backward() used it."
                yield Observation(each.place, text, ADVICE, {"model": history.called(each.model)})


def _last_mode_event(trace: Trace, forward: TraceEvent) -> TraceEvent | None:
    before = trace.events[: trace.events.index(forward)]
    return next(
        (
            each
            for each in reversed(before)
            if each.kind in ("eval", "train") and each.subject == forward.subject
        ),
        None,
    )


def are_gradients_off(module: SourceModule, event: TraceEvent) -> bool:
    """Tell whether a with block or a decorator switches gradients off around an event."""
    for frame in event.path:
        if isinstance(frame.node, ast.With) and any(
            _is_no_grad(module, item.context_expr) for item in frame.node.items
        ):
            return True
        if isinstance(frame.node, ast.Call) and (target := module.functions.target(frame.node)) is not None:
            if any(_is_no_grad(module, each) for each in getattr(target, "decorator_list", [])):
                return True
    function = module.enclosing(event.node, ast.FunctionDef, ast.AsyncFunctionDef)
    return any(_is_no_grad(module, each) for each in getattr(function, "decorator_list", []))


def _is_no_grad(module: SourceModule, node: ast.expr) -> bool:
    return module.qualify(node.func if isinstance(node, ast.Call) else node) in OFF
