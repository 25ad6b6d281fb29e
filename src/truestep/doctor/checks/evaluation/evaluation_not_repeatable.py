# SPDX-License-Identifier: Apache-2.0
"""A model that gives two answers in eval mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION
from truestep.doctor.probe import Probe
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.watcher import Observation, Observations

if TYPE_CHECKING:
    from truestep.doctor.runtime.passage import ProbedValue, ProbePassage


class EvaluationNotRepeatable(Probe):
    """In eval mode the model gives different outputs for the same input.

    Why: something random ignores the mode (F.dropout without training=self.training, layers made in forward):
    validation figures are noise.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 3)

            def forward(self, x):
                return self.layer(x) + torch.randn(3)

        F.cross_entropy(Net()(x), y).backward()  # here

    Good:
        F.cross_entropy(net(x), y).backward()

    Fix: make what is random depend on self.training; where sampling is meant (a VAE), hide it:
    `# truestep: ignore[EVAL012]`.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/aae/aae.py:176; graykode/nlp-tutorial
    d05e31ec 5-2.BERT/BERT.py:114.
    """

    code = "EVAL012"

    def try_out(self, forward: ForwardCall) -> Observations:
        """Apply the model in eval mode twice."""
        import torch

        from truestep.doctor.runtime.passage import ProbePassage
        from truestep.doctor.runtime.probed_model import ProbedModel

        with ProbedModel(forward) as trial:
            passages = [ProbePassage(trial, seed=seed) for seed in (0, 1)]
        first, second = (each.output for each in passages)
        if first is None or second is None or first.shape != second.shape:
            return
        if not torch.equal(first, second) and not torch.allclose(first, second, equal_nan=True):
            difference = float((first.float() - second.float()).abs().max())
            begin = _begin(passages)
            told = f" from {begin.told(forward.variable)} on" if begin is not None else ""
            text = f"In eval mode two passes over the same input differ{told}: is that meant?"
            made_at = begin.place if begin is not None else None
            evidence = {"largest_difference": difference, "model": forward.called, "made_at": made_at}
            yield Observation(forward.place, text, QUESTION, evidence)


def _begin(passages: list[ProbePassage]) -> ProbedValue | None:
    """Return the first operation that gave two results."""
    from truestep.doctor.runtime.passage import align_passages, probed_values_differ

    for computed, (one, other) in align_passages(passages):
        if bool(probed_values_differ(one, other).any()):
            return computed
    return None
