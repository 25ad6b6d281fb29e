# SPDX-License-Identifier: Apache-2.0
"""The answer among the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG, RISK
from truestep.doctor.probe_base import Probe
from truestep.doctor.watcher_base import Observation, Observations

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import ForwardCall, LossCall, WatchHistory


class NextStepSeen(Probe):
    """A model is to predict each next symbol, and sees it; or a causal model the symbol, or any model numbers, that it is given.

    Why: the output for a step changes with later steps of the input, among them the very answer: the loss falls to
    almost nothing, and the model can't continue a text. With targets that are not shifted it learns to copy.

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

    Fix: a causal mask in every attention, no bidirectional recurrence, convolutions padded on the left only; inputs =
    text[:, :-1], targets = text[:, 1:]; of a series v[i : i + 24] and v[i + 24 : i + 27].

    Evidence: the plain form of row 77 of docs/mistakes.md.
    """

    code = "DATA033"

    def __init__(self) -> None:
        self.forward: ForwardCall | None = None
        self.loss: LossCall | None = None

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> Observations:
        """Remember the forward that trains; the loss may come before its end, or after."""
        if not self.tried and not history.num_steps and forward.module.training and forward.gradients_on:
            self.forward = forward
        yield from ()

    def on_loss(self, history: WatchHistory, loss: LossCall) -> None:
        """Remember the loss."""
        self.loss = loss

    def on_backward(self, history: WatchHistory, tensors: object, place: object) -> Observations:
        """Try it out before the first step."""
        if not self.tried and self.forward is not None:
            self.tried = True
            yield from self.tried_out(self.forward)
        self.forward = self.loss = None

    def try_out(self, forward: ForwardCall) -> Observations:
        """Find out what is asked for, and change the last step: see which outputs change with it."""
        from truestep.doctor.forks.child import NotTriedError
        from truestep.doctor.runtime.sequence_leakage import (
            probe_sequence_sight,
            sequence_probe_task,
            targets_found_in_input,
        )

        task = sequence_probe_task(forward, self.loss) if self.loss is not None else None
        if task is None:
            places = targets_found_in_input(forward, self.loss) if self.loss is not None else None
            if places is not None:
                text = f"The targets are among the numbers that the model is given: in each row, those at {places}."
                yield Observation(forward.place, text, RISK, {"model": forward.called})
            return
        sight, text = probe_sequence_sight(forward, task), ""
        if sight is None:
            raise NotTriedError(
                "which axis of the model's output is time can't be told, or no seed repeats it"
            )
        if task.ahead == 1 and sight.of_later:
            begin = f", from {sight.where} on" if sight.where else ""
            text = (
                f"The targets are the next symbols, and the output for a step depends on later ones{begin}."
            )
        elif task.ahead == 0 and sight.of_itself and not sight.of_later:
            text = "Each target is the symbol that the model is given at the same step."
        if text:
            yield Observation(forward.place, text, BUG, {"model": forward.called})
