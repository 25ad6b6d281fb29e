# SPDX-License-Identifier: Apache-2.0
"""Steps that change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.runtime.tensor_queries import is_readable_without_sync
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    import torch

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

AFTER = 6


class ParameterNeverMoves(Watcher):
    """Parameters have gradients and are stepped, but stay bit for bit what they were.

    Why: a learning rate of 0, or updates too small for the type (bfloat16 keeps 3 digits).

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.0)  # here
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: a learning rate that is not 0; float32 weights with autocast instead of half-precision weights.

    Evidence: the plain form of row 48 of docs/mistakes.md.
    """

    code = "PARAM017"

    def __init__(self) -> None:
        self.before: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Compare copies of a few parameters from the first step with what they are some steps later."""
        import torch

        if record.num_steps == 0:
            kept = [
                each for each in record.sample() if is_readable_without_sync(each) and each.numel() < 1 << 20
            ]
            self.before[id(record)] = [
                (each, each.detach().clone()) for each in kept if self._has_nonzero_gradient(each)
            ]
        if record.num_steps != AFTER:
            return
        copies = self.before.pop(id(record), [])
        still = [each for each, copy in copies if torch.equal(each, copy)]
        if copies and len(still) == len(copies):
            rates = sorted({float(group["lr"]) for group in record.optimizer.param_groups if "lr" in group})
            text = f"After {AFTER} steps the parameters are bit for bit what they were."
            evidence = {"learning_rates": rates, "dtype": str(still[0].dtype).removeprefix("torch.")}
            yield Observation(record.place, text, BUG, evidence)

    def _has_nonzero_gradient(self, parameter: torch.Tensor) -> bool:
        return parameter.grad is not None and bool(parameter.grad.norm() > 0)  # sparse ones have no max
