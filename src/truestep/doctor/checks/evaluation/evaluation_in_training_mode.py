# SPDX-License-Identifier: Apache-2.0
"""Evaluating a model that was never put into eval mode."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, At, SourceCheck, Unsure
from truestep.doctor.source.evaluations import evaluations_of, sensitive_layers
from truestep.doctor.source.events import Event, Trace
from truestep.doctor.source.module import SourceModule


class EvaluationInTrainingMode(SourceCheck):
    """A model is evaluated without eval().

    Why: dropout goes on dropping, and batch norm normalises by the test batch and learns from it.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        with torch.no_grad():
            for x, y in test_loader:
                correct = (net(x).argmax(1) == y).sum()  # here

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.eval()
        with torch.no_grad():
            for x, y in test_loader:
                correct = (net(x).argmax(1) == y).sum()

    Fix: net.eval() before, net.train() after.
    """

    code = "EVAL002"
    words = ("no_grad", "inference_mode", "eval", "test", "val")

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report the first application of a model in an evaluation that no eval() of it precedes."""
        for trace in module.traces:
            for forward in evaluations_of(module, trace):
                if _mode_before(trace, forward) == "eval" or forward.receiver is None:
                    continue
                layers = sensitive_layers(module, forward.receiver)
                if layers is None:
                    yield Unsure(
                        forward.node, "whether the model has dropout or batch norm can't be seen from here"
                    )
                elif layers:
                    names = ", ".join(sorted(layers))
                    yield At(forward.node, f"The model is evaluated in training mode; it has {names}.", BUG)
                    break


def _mode_before(trace: Trace, forward: Event) -> str | None:
    before = trace.events[: trace.events.index(forward)]
    modes = [event for event in before if event.kind in ("eval", "train") and _same(event, forward)]
    return modes[-1].kind if modes else None


def _same(mode: Event, forward: Event) -> bool:
    mine, other = forward.subject, mode.subject
    return (
        other in {mine, "?"}
        or mine.startswith(other + ".")
        or isinstance(mode.receiver, ast.Call)
        or other.endswith(".self")
    )
