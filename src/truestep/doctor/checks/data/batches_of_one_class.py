# SPDX-License-Identifier: Apache-2.0
"""Batches sorted by class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.runtime.tensor_queries import is_readable_without_sync
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

BATCHES = 4


class BatchesOfOneClass(Watcher):
    """Every batch so far held one class only, and not always the same.

    Why: the data come sorted by class, unshuffled: each step unlearns what the last ones taught.

    Bad:
        data = TensorDataset(torch.randn(64, 4), torch.arange(64) // 22)
        for _ in range(3):
            for x, y in DataLoader(data, batch_size=4):
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()  # here
                opt.step()

    Good:
        data = TensorDataset(torch.randn(64, 4), torch.arange(64) // 22)
        for _ in range(3):
            for x, y in DataLoader(data, batch_size=4, shuffle=True):
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: shuffle=True.

    Evidence: the plain form of row 81 of docs/mistakes.md.
    """

    code = "DATA016"

    def __init__(self) -> None:
        self.classes: list[int | None] = []

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Report enough batches of at least four examples that hold one class each, in turn."""
        if (
            loss.name not in ("cross_entropy", "nll_loss")
            or loss.target.dim() != 1
            or loss.target.is_floating_point()
        ):
            return
        if (
            loss.target.numel() < 4
            or not is_readable_without_sync(loss.target)
            or not loss.value.requires_grad
        ):
            return
        values = set(loss.target.tolist())
        self.classes.append(values.pop() if len(values) == 1 else None)
        single = [each for each in self.classes if each is not None]
        if len(single) >= BATCHES and len(single) >= 0.8 * len(self.classes) and len(set(single)) > 1:
            text = f"{len(single)} of the first {len(self.classes)} batches hold one class only."
            evidence = {"batches": len(self.classes), "classes_in_turn": single[:12]}
            self.classes = []
            yield Observation(loss.place, text, BUG, evidence)
