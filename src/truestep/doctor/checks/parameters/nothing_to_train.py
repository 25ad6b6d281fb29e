# SPDX-License-Identifier: Apache-2.0
"""An optimizer over frozen parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

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

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report it at the first step."""
        if record.num_steps == 0 and not any(each.requires_grad for each in record.parameters()):
            number = sum(1 for _ in record.parameters())
            yield Observation(
                place, f"All {number} parameters of the optimizer are frozen.", BUG, {"parameters": number}
            )
