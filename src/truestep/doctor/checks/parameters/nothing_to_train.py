# SPDX-License-Identifier: Apache-2.0
"""An optimizer over frozen parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


class NothingToTrain(Watcher):
    """All parameters of an optimizer that steps are frozen.

    Why: no parameter can change; the loop runs for nothing.

    Bad:
        net.requires_grad_(False)
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            opt.step()  # here

    Good:
        net[0].requires_grad_(False)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: requires_grad_(True) for what is to be trained.

    Evidence: the plain form of row 55 of docs/mistakes.md.
    """

    code = "PARAM014"

    def __init__(self) -> None:
        self.waiting: dict[int, Observation] = {}  # beside others an optimizer's turn may come later

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report it at the first step, of one of several optimizers at the end if it stays so."""
        if any(each.requires_grad for each in record.parameters()):
            self.waiting.pop(id(record), None)
        elif record.num_steps == 0:
            number = sum(1 for _ in record.parameters())
            text = f"All {number} parameters of the optimizer are frozen."
            found = Observation(place, text, BUG, {"parameters": number})
            if len(history.records) > 1:
                self.waiting[id(record)] = found
            else:
                yield found

    def on_finish(self, history: WatchHistory) -> Observations:
        """Report what was never unfrozen."""
        if not history.is_cut_short:
            yield from self.waiting.values()
