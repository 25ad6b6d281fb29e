# SPDX-License-Identifier: Apache-2.0
"""Squared error for two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.runtime.looking import watched_on_host
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory

_BATCHES = 5


class SquaredErrorOfProbabilities(Watcher):
    """Probabilities of two classes are trained with squared error.

    Why: its gradient vanishes where the sigmoid is sure and wrong, just where most is to be learnt:
    training stalls.

    Bad:
        net = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(6):
            loss = F.mse_loss(net(x).squeeze(1), (y > 0).float())  # here
            opt.zero_grad()
            loss.backward()
            opt.step()

    Good:
        net = nn.Sequential(nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(6):
            loss = F.binary_cross_entropy_with_logits(net(x).squeeze(1), (y > 0).float())
            opt.zero_grad()
            loss.backward()
            opt.step()

    Fix: binary_cross_entropy_with_logits on the raw output, without the sigmoid.
    """

    code = "LOSS031"

    def __init__(self) -> None:
        self.num_batches: dict[object, int] = {}

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Count batches in which one sigmoid an example meets both a 0 and a 1, and nothing else."""
        if loss.name != "mse_loss" or not watched_on_host(loss.target):
            return
        target = loss.target.detach()
        one_each = target.dim() == 1 or (target.dim() == 2 and target.shape[1] == 1)
        made = history.made(loss.input, loss.place)
        if one_each and made.operation == "sigmoid" and _both_classes(target):
            self.num_batches[loss.place] = self.num_batches.get(loss.place, 0) + 1
            if self.num_batches[loss.place] == _BATCHES:
                text = f"The targets are 0 and 1, the outputs those of {made.told}."
                yield Observation(loss.place, text, RISK, made.evidence())


def _both_classes(target: Tensor) -> bool:
    zeros, ones = target == 0, target == 1
    return bool(zeros.any() and ones.any() and (zeros | ones).all())
