# SPDX-License-Identifier: Apache-2.0
"""Targets that were not shifted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.probe import SequenceProbe
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.watcher import Observation, Observations

if TYPE_CHECKING:
    from truestep.doctor.runtime.sequences import SequenceProbeSight, SequenceProbeTask


class InputAsTarget(SequenceProbe):
    """A causal model is to predict, at each step, the symbol that it is given there.

    Why: inputs and targets are the same, where each target should be the next symbol: the model learns to copy.

    Bad:
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
                self.layer = nn.GRU(8, 8, batch_first=True)

            def forward(self, tokens):
                return self.head(self.layer(self.embed(tokens))[0])

        text = torch.randint(9, (4, 12))
        logits = Model()(text)  # here
        F.cross_entropy(logits.transpose(1, 2), text).backward()

    Good:
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
                self.layer = nn.GRU(8, 8, batch_first=True)

            def forward(self, tokens):
                return self.head(self.layer(self.embed(tokens))[0])

        text = torch.randint(9, (4, 12))
        logits = Model()(text[:, :-1])
        F.cross_entropy(logits.transpose(1, 2), text[:, 1:]).backward()

    Fix: inputs = text[:, :-1], targets = text[:, 1:].

    Evidence: seen only while a script runs.
    """

    code = "DATA034"

    def judge(self, forward: ForwardCall, task: SequenceProbeTask, sight: SequenceProbeSight) -> Observations:
        """Report outputs that depend on their own step and no later one, where that step is asked for."""
        if task.ahead == 0 and sight.of_itself and not sight.of_later:
            text = "Each target is the symbol that the model is given at the same step."
            yield Observation(forward.place, text, BUG, {"model": forward.called})
