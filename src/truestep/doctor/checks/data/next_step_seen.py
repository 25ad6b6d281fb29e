# SPDX-License-Identifier: Apache-2.0
"""The answer among the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.probe import SequenceProbe
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.watcher import Observation, Observations

if TYPE_CHECKING:
    from truestep.doctor.runtime.sequences import SequenceProbeSight, SequenceProbeTask


class NextStepSeen(SequenceProbe):
    """A model is to predict each next symbol, and sees it.

    Why: the output for a step changes with later steps of the input, among them the very answer: the loss falls to
    almost nothing, and the model can't continue a text.

    Bad:
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
                self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

            def forward(self, tokens):
                return self.head(self.layer(self.embed(tokens)))

        text = torch.randint(9, (4, 12))
        logits = Model()(text[:, :-1])  # here
        F.cross_entropy(logits.transpose(1, 2), text[:, 1:]).backward()

    Good:
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
                self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

            def forward(self, tokens):
                mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
                return self.head(self.layer(self.embed(tokens), mask, is_causal=True))

        text = torch.randint(9, (4, 12))
        logits = Model()(text[:, :-1])
        F.cross_entropy(logits.transpose(1, 2), text[:, 1:]).backward()

    Fix: a causal mask in every attention, no bidirectional recurrence, convolutions padded on the left only.

    Evidence: seen only while a script runs.
    """

    code = "DATA033"

    def judge(self, forward: ForwardCall, task: SequenceProbeTask, sight: SequenceProbeSight) -> Observations:
        """Report an output that changes with a later step, where the next one is asked for."""
        if task.ahead == 1 and sight.of_later:
            begin = f", from {sight.where} on" if sight.where else ""
            text = (
                f"The targets are the next symbols, and the output for a step depends on later ones{begin}."
            )
            yield Observation(forward.place, text, BUG, {"model": forward.called})
