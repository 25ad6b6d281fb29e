# SPDX-License-Identifier: Apache-2.0
"""Gradients that grow beyond all bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.runtime.looking import watched_on_host
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

FACTOR = 1000.0


class GradientsExplode(Watcher):
    """The gradient norm is a thousand times larger than in the first steps.

    Why: the next steps throw the weights far away; NaN is near.

    Bad:
        net = nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(5):
            for x, y in loader:
                opt.zero_grad()
                (net(x).squeeze(1) - y).square().mean().backward()
                opt.step()  # here
            opt.param_groups[0]["lr"] = 5.0

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: a lower learning rate, warm-up, clipping by norm.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/077/main.py:14.
    """

    code = "GRAD026"

    def __init__(self) -> None:
        self.norms: dict[int, list[float]] = {}

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Compare with the median of the first three norms, within the window."""
        gradients = [each.grad for each in record.parameters() if each.grad is not None]
        if not gradients or not history.in_window or not all(map(watched_on_host, gradients)):
            return
        norm = sum(float(each.detach().abs().float().square().sum()) for each in gradients) ** 0.5
        norms = self.norms.setdefault(id(record), [])
        norms.append(norm)
        first = sorted(norms[:3])[1] if len(norms) > 3 else None
        if first and FACTOR * first < norm < float("inf"):
            evidence = {"norm": norm, "first_norms": first, "step": record.num_steps + 1}
            norms.clear()
            yield Observation(
                place,
                f"The gradient norm grew {norm / first:.0f}-fold within the first steps.",
                RISK,
                evidence,
            )
