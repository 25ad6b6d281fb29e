# SPDX-License-Identifier: Apache-2.0
"""Evaluating a model that was never put into eval mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import BUG, QUESTION, RISK, At, SourceCheck, Unsure
from truestep.doctor.source.actions import EVALUATE
from truestep.doctor.source.evaluations import evaluations_of, is_of_held_out, sensitive_layers
from truestep.doctor.source.measurements import measurements_of
from truestep.doctor.source.modes import another_set_before, mode_before
from truestep.doctor.source.module import SourceModule
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import ModelApplication, WatchHistory
    from truestep.doctor.runtime.row_batches import RowBatch


class EvaluationInTrainingMode(SourceCheck, Watcher):
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

    Fix: net.eval() before, net.train() after; functions such as F.dropout need training=self.training.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/aae/aae.py:152; eriklindernoren/PyTorch-GAN
    36d3c77e implementations/acgan/acgan.py:159; bed C: 1 true, 0 false; bed D: 0 true, 1 false; bed E: 2 true,
    0 false; bed F: 0 true, 2 debatable, 0 false; bed G: 1 true, 0 false; 186 repositories: 4 true, 0 false.
    """

    code = "EVAL002"
    never = (EVALUATE,)
    words = ("no_grad", "inference_mode", "eval", "test", "val", "argmax")

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report the first application of a model in an evaluation that no eval() of it precedes."""
        for trace in module.traces:
            known = list(evaluations_of(module, trace))
            for forward in [*known, *(each for each in measurements_of(module, trace) if each not in known)]:
                if mode_before(module, trace, forward) in ("eval", "unknown") or forward.receiver is None:
                    continue
                layers = sensitive_layers(module, forward.receiver)
                if layers is None:
                    yield Unsure(
                        forward.node, "whether the model has dropout or batch norm can't be seen from here"
                    )
                elif layers:
                    names = ", ".join(sorted(layers))
                    certain = forward in known and is_of_held_out(module, trace, forward)
                    severity = BUG if certain and not another_set_before(trace, forward) else RISK
                    yield At(
                        forward.node, f"The model is evaluated in training mode; it has {names}.", severity
                    )
                    break

    def on_evaluation(self, history: WatchHistory, applied: list[ModelApplication]) -> Observations:
        """Report a trained model that was applied with layers in training mode."""
        for each in applied:
            if not each.active or not history.is_trained(each.model):
                continue
            layers, severity = ", ".join(each.active), BUG
            text = f"The model is evaluated in training mode; {layers} is active."
            if not each.training:  # dropout as a measure of uncertainty is switched on so
                text = f"The model is evaluated in eval mode, its {layers} in training mode: is that meant?"
                severity = QUESTION
            elif _is_sampled(history, each.rows):
                text = f"The model gives samples in training mode, with {layers} active: is that meant?"
                severity = QUESTION
            evidence = {
                "layers": each.active,
                "after_steps": history.num_steps,
                "model": history.called(each.model),
            }
            yield Observation(each.place, text, severity, evidence)


def _is_sampled(history: WatchHistory, rows: RowBatch | None) -> bool:
    """Tell whether another model judges in training what this one gives, and none does here: a GAN's generator."""
    return rows is not None and not rows.is_passed_on and history.rows.passes_on_in_training(rows)
