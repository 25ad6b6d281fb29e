# SPDX-License-Identifier: Apache-2.0
"""A parameter that an optimizer holds twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


class ParameterHeldTwice(Watcher):
    """An optimizer's list holds a parameter twice.

    Why: each step updates it twice; torch only warns of it.

    Bad:
        shared = nn.Linear(4, 4)
        first, second = nn.Sequential(shared, nn.Linear(4, 3)), nn.Sequential(shared, nn.Linear(4, 3))
        opt = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)  # here

    Good:
        shared = nn.Linear(4, 4)
        first, second = nn.Sequential(shared, nn.Linear(4, 3)), nn.Sequential(shared, nn.Linear(4, 3))
        opt = torch.optim.SGD(nn.ModuleList([first, second]).parameters(), lr=0.1)

    Fix: nn.ModuleList([first, second]).parameters() yields each once.
    """

    code = "PARAM034"

    def on_optimizer(self, history: WatchHistory, record: OptimizerRecord) -> Observations:
        """Compare the number of parameters with that of different ones."""
        held = [id(each) for each in record.parameters()]
        if again := len(held) - len(set(held)):
            text = f"{again} of the {len(held)} parameters in its list are there already."
            yield Observation(record.place, text, evidence={"held": len(held), "different": len(set(held))})
