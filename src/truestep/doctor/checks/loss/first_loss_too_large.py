# SPDX-License-Identifier: Apache-2.0
"""A start far worse than guessing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.runtime.tensor_queries import is_readable_without_sync
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

TIMES = 4.0


class FirstLossTooLarge(Watcher):
    """The first loss is many times that of guessing, ln C.

    Why: the logits start far too large: an initialisation without scale, or inputs that are not normalised.

    Bad:
        big = nn.Linear(4, 3)
        nn.init.normal_(big.weight, std=100.0)
        loss = F.cross_entropy(big(x), y)  # here
        loss.backward()

    Good:
        loss = F.cross_entropy(net(x), y)
        loss.backward()

    Fix: initialise the output layer as nn.Linear does, scaled by 1/sqrt(inputs); inputs of mean 0 and deviation 1. A weight
    that is an nn.Embedding's, too, starts at deviation 1, torch's default there: nn.init.normal_(embedding.weight, std=0.02).

    Evidence: graykode/nlp-tutorial d05e31ec 5-2.BERT/BERT.py:217.
    """

    code = "LOSS021"

    def __init__(self) -> None:
        self.judged = False

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Compare the very first cross entropy of the run with ln C."""
        if loss.name != "cross_entropy" or self.judged or loss.value.dim() or loss.input.dim() < 2:
            return
        self.judged = True
        classes = loss.input.shape[1]
        if (
            classes < 2
            or history.num_steps
            or not is_readable_without_sync(loss.value)
            or loss.options.get("reduction") == "sum"
        ):
            return
        value, guess = float(loss.value), math.log(classes)
        if TIMES * guess + 2 < value < math.inf:
            evidence = {"first_loss": value, "of_guessing": guess, "classes": classes}
            yield Observation(
                loss.place, f"The first loss is {value:.3g}; guessing gives {guess:.3g}.", RISK, evidence
            )
