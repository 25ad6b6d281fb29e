# SPDX-License-Identifier: Apache-2.0
"""A loss of a value and itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


class ComparedWithItself(Watcher):
    """The input and the target of a loss are the same values in memory.

    Why: the loss is constant, mostly 0, and says nothing about the data.

    Bad:
        outputs = net(x)
        goals = outputs
        F.mse_loss(outputs, goals.detach()).backward()  # here

    Good:
        outputs = net(x)
        goals = torch.zeros_like(outputs)
        F.mse_loss(outputs, goals).backward()

    Fix: give the loss the targets of the batch.
    """

    code = "LOSS038"

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Compare addresses and layouts; nothing is read."""
        given, target = loss.input, loss.target
        if not given.numel() or not given.requires_grad:
            return
        same = given.data_ptr() == target.data_ptr() and given.shape == target.shape
        if same and given.stride() == target.stride() and given.dtype == target.dtype:
            text = f"The input and the target of {loss.name} are the same values."
            yield Observation(loss.place, text, BUG, {"shape": tuple(given.shape)})
