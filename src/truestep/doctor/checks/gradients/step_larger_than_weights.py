# SPDX-License-Identifier: Apache-2.0
"""A learning rate that throws the weights about."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

_STEPS = 3
_LARGE = 2.0  # times the weights; those that began near 0 are moved so once, not twice


class StepLargerThanWeights(Watcher):
    """An optimizer's first steps move a layer's weights by more than twice their own size.

    Why: the learning rate is far too large: nothing of the initialisation is left, and the loss soon grows
    without bound or stands still.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=1000.0)  # here
        for _ in range(3):
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()

    Fix: a learning rate at which a step changes the weights by a thousandth, or a hundredth at most.
    """

    code = "GRAD042"

    def __init__(self) -> None:
        self.before: list[tuple[Tensor, Tensor]] = []
        self.ratios: dict[int, list[float]] = {}

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations | None:
        """Keep copies of a few weight matrices."""
        sample = record.sample() if record.num_steps < _STEPS else []
        matrices = [each for each in sample if each.dim() > 1 and not each.is_meta]
        self.before = [(each, each.detach().clone()) for each in matrices]
        return None

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Compare the change with what was there; weights that began at, or near, 0 are moved so only once."""
        moved = [_ratio(now, then) for now, then in self.before if then.count_nonzero()]
        self.before = []
        if moved:
            ratios = self.ratios.setdefault(id(record), [])
            ratios.append(max(moved))
            if len(ratios) == _STEPS and sorted(ratios)[1] > _LARGE:
                rate = record.optimizer.param_groups[0]["lr"]
                text = f"With lr={rate} the first steps move a layer by more than twice its size."
                finite = [each if math.isfinite(each) else None for each in ratios]
                yield Observation(record.place, text, RISK, {"moved_by": finite})


def _ratio(now: Tensor, then: Tensor) -> float:
    ratio = float((now.detach() - then).norm() / then.norm())
    return ratio if math.isfinite(ratio) else math.inf
