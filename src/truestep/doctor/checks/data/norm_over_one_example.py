# SPDX-License-Identifier: Apache-2.0
"""Batch statistics of a single example."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.runtime.tensor_queries import first_watched_tensor
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import nn

    from truestep.doctor.runtime.history import WatchHistory

TIMES = 3  # a short last batch now and then is no mistake


class NormOverOneExample(Watcher):
    """Batch norm layers are trained on batches of one example.

    Why: mean and variance are those of one example; the running statistics, which evaluation uses, are
    others, and accuracy falls.

    Bad:
        norm = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
        opt = torch.optim.SGD(norm.parameters(), lr=0.1)
        for step in range(6):
            opt.zero_grad()
            F.cross_entropy(norm(torch.randn(1, 1, 4, 4)), torch.tensor([step % 3])).backward()  # here
            opt.step()

    Good:
        norm = nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(8, 3))
        opt = torch.optim.SGD(norm.parameters(), lr=0.1)
        for step in range(6):
            opt.zero_grad()
            F.cross_entropy(norm(torch.randn(1, 1, 4, 4)), torch.tensor([step % 3])).backward()
            opt.step()

    Fix: larger batches, GroupNorm or LayerNorm, or SyncBatchNorm over several processes.

    Evidence: the plain form of row 32 of docs/mistakes.md.
    """

    code = "DATA018"
    looks_inside = True

    def __init__(self) -> None:
        self.layers: set[str] = set()
        self.batches = 0

    def on_layer(self, history: WatchHistory, module: nn.Module, output: Any) -> None:
        """Note batch norms in training mode whose output holds one example."""
        from torch import nn

        batch_norm = isinstance(module, nn.modules.batchnorm._BatchNorm)
        if (
            batch_norm
            and module.training
            and (found := first_watched_tensor(output)) is not None
            and len(found) == 1
        ):
            self.layers.add(type(module).__name__)

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> Observations:
        """Report the third forward in which there were such."""
        seen, self.layers = self.layers, set()
        if seen and forward.gradients_on:
            self.batches += 1
            if self.batches == TIMES:
                text = f"{', '.join(sorted(seen))} normalises by the statistics of one example."
                yield Observation(forward.place, text, RISK, {"batch_size": 1, "layers": sorted(seen)})
