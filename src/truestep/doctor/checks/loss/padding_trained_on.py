# SPDX-License-Identifier: Apache-2.0
"""Places that only fill a batch up, and count in the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import ForwardCall, LossCall, WatchHistory

BATCHES = 3  # so many show the same


class PaddingTrainedOn(Watcher):
    """Where the model's input is padding, cross entropy asks for one class, and those places count like all others.

    Why: the mean is taken over places that are no data: the loss looks small, it depends on how long the longest sequence
    of a batch is, and the model learns to pad.

    Bad:
        tagger = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 3))
        for length in range(3, 7):
            words = torch.randint(1, 9, (8, 8))
            words[::2, length:] = 0
            tags = words % 3
            F.cross_entropy(tagger(words).flatten(0, 1), tags.flatten()).backward()  # here

    Good:
        tagger = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 3))
        for length in range(3, 7):
            words = torch.randint(1, 9, (8, 8))
            words[::2, length:] = 0
            tags = (words % 3).masked_fill(words == 0, -100)
            F.cross_entropy(tagger(words).flatten(0, 1), tags.flatten()).backward()

    Fix: give the loss ignore_index=PADDING, or pad the targets with -100.
    """

    code = "LOSS052"

    def __init__(self) -> None:
        self.given: list[Tensor] = []  # batches of symbols that models were given since the last loss
        self.seen: dict[Place, int] = {}

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Remember batches of symbols."""
        from truestep.doctor.runtime.looking import watched_tensors

        if history.in_window and forward.module.training and forward.gradients_on:
            inputs = watched_tensors([*forward.args, *forward.kwargs.values()])
            self.given += [each for each in inputs if each.dim() == 2 and not each.is_floating_point()]

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Look for the ends of sequences in what the model was given, and for what is asked there."""
        given, self.given = self.given, []
        if loss.name not in ("cross_entropy", "nll_loss") or loss.target.is_floating_point():
            return
        weights, counts = loss.options.get("weight"), loss.options.get("reduction", "mean") != "none"
        if weights is not None or not counts or not loss.input.requires_grad:
            return
        from truestep.doctor.runtime.padding import padded_targets

        for symbols in given:
            found = padded_targets(symbols, loss.target, loss.options.get("ignore_index", -100))
            if found is None:
                continue
            self.seen[loss.place] = self.seen.get(loss.place, 0) + 1
            if self.seen[loss.place] == BATCHES:
                text = (
                    f"{found.share:.0%} of the places that count are padding: the input is {found.filler} there, to each "
                    f"sequence's end, and the target {found.target}."
                )
                evidence = {"share": found.share, "input": found.filler, "target": found.target}
                yield Observation(loss.place, text, RISK, evidence)
            return

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> None:
        """What was given belongs to the losses before."""
        self.given = []
