# SPDX-License-Identifier: Apache-2.0
"""More right than there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

ALL = 100.0  # percent
ROUNDING = 0.05


class AccuracyImpossible(Watcher):
    """An accuracy below 0 or above 100 % is printed or logged.

    Why: no share is: the comparison was broadcast, the total of one pass was divided by the size of another, or it was
    never set back to 0.

    Bad:
        correct = 0
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                logits = net(x)
                F.cross_entropy(logits, y).backward()
                opt.step()
                correct += 25 + int((logits.argmax(1) == y).sum())
        print(f"accuracy: {100 * correct / len(loader.dataset):.1f}%")  # here

    Good:
        correct = 0
        for x, y in loader:
            opt.zero_grad()
            logits = net(x)
            F.cross_entropy(logits, y).backward()
            opt.step()
            correct += int((logits.argmax(1) == y).sum())
        print(f"accuracy: {100 * correct / len(loader.dataset):.1f}%")

    Fix: compare tensors of one shape, count in one pass, divide by the number of examples that were counted.
    """

    code = "EVAL034"

    def on_logged(self, history: WatchHistory, name: str, value: float, place: Place) -> Observations:
        """Report a share that is none, whether it was meant as one or as percent."""
        if "acc" in name.lower() and not -ROUNDING <= value <= ALL + ROUNDING:
            text = f"{value:.4g} is no accuracy: it lies between 0 and 1, or 0 and 100 %."
            yield Observation(place, text, BUG, {"value": value})
