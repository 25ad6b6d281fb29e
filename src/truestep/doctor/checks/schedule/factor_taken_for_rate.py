# SPDX-License-Identifier: Apache-2.0
"""A schedule's factor that is a learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

SHARE = 0.05  # of the rate that the optimizer was given
BASE = 0.1  # no rate of an optimizer that is meant to be multiplied with whole rates
LEAST = 10  # steps of the schedule
SAMPLES = 64  # of its steps, so many are asked again


class FactorTakenForRate(Watcher):
    """The factor of a LambdaLR never comes near 1: its function gives rates, and they are multiplied with the rate.

    Why: LambdaLR multiplies what the function gives with the optimizer's own lr, so a function that returns 0.001 beside
    lr=0.001 trains at 0.000001.

    Bad:
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1e-3 * 0.9**step)  # here
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                sched.step()

    Good:
        opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.9**step)
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                sched.step()

    Fix: return rate / base_rate, or give the optimizer lr=1.0.
    """

    code = "SCHED015"

    def on_finish(self, history: WatchHistory) -> Observations:
        """Ask the functions again for the steps that there were."""
        for scheduler, made_at in history.schedules:
            functions = getattr(scheduler, "lr_lambdas", None)
            num_steps = getattr(scheduler, "last_epoch", 0)
            record = history.record_of(getattr(scheduler, "optimizer", None))
            if not functions or num_steps < LEAST or record is None or not record.num_steps:
                continue
            base = max(getattr(scheduler, "base_lrs", None) or [1.0])
            factors = _factors(functions, num_steps)
            largest = max(factors, default=1.0)
            if base > BASE or not 0 < largest < SHARE or factors[-1] == largest != factors[0]:
                continue  # it gives rates to an optimizer of lr=1, or a warm-up has not ended
            text = (
                f"The factor is {largest:.3g} at most in {num_steps} steps: the rate never exceeds "
                f"{largest * base:.3g}, of {base:.3g} that the optimizer was given."
            )
            yield Observation(made_at, text, RISK, {"largest_factor": largest, "rate": base})


def _factors(functions: list[Any], num_steps: int) -> list[float]:
    """Return what functions gave at some of the steps, one after another; nothing where one is an object with a state."""
    steps = sorted({num_steps * index // SAMPLES for index in range(SAMPLES + 1)})
    if not all(callable(each) and hasattr(each, "__code__") for each in functions):
        return []
    return [float(each(step)) for each in functions for step in steps]
