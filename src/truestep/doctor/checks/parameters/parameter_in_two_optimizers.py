# SPDX-License-Identifier: Apache-2.0
"""A parameter that is stepped twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


class ParameterInTwoOptimizers(Watcher):
    """Two optimizers that both step hold the same parameters.

    Why: each loss moves them, with two states and two rates; in a GAN the generator's step then trains
    the discriminator to be fooled.

    Bad:
        head = nn.Linear(3, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        opt_head = torch.optim.Adam([*head.parameters(), *net.parameters()])  # here
        for x, y in loader:
            opt.zero_grad()
            opt_head.zero_grad()
            F.cross_entropy(head(net(x)), y % 2).backward()
            opt.step()
            opt_head.step()

    Good:
        head = nn.Linear(3, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        opt_head = torch.optim.Adam(head.parameters())
        for x, y in loader:
            opt.zero_grad()
            opt_head.zero_grad()
            F.cross_entropy(head(net(x)), y % 2).backward()
            opt.step()
            opt_head.step()

    Fix: give each optimizer its own model's parameters.
    """

    code = "PARAM023"

    def __init__(self) -> None:
        self.stepped_at: dict[int, Place] = {}
        self.shared: dict[int, list[Observation]] = {}  # by the optimizer that stepped first

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report shared parameters when the first of two optimizers steps again after the second, from another line.

        One that never steps again was replaced. One that steps from the same line is a part of the other: SAM,
        Lookahead and the like.
        """
        self.stepped_at[id(record)] = place
        yield from self.shared.pop(id(record), ())
        if not record.num_steps:
            self._look(history, record, place)

    def _look(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> None:
        mine = {id(each) for each in record.parameters() if each.requires_grad}
        for other in history.stepping():
            shared = [each for each in other.parameters() if id(each) in mine]
            if other is not record and shared and self.stepped_at.get(id(other), place) != place:
                names = [history.name_of(each) for each in shared[:4]]
                text = f"{len(shared)} parameters are held by two optimizers: {', '.join(names)}."
                saw = Observation(
                    record.place, text, RISK, {"shared": names, "other_made_at": str(other.place)}
                )
                self.shared.setdefault(id(other), []).append(saw)
