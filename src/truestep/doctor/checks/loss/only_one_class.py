# SPDX-License-Identifier: Apache-2.0
"""Cross entropy over a single class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


class OnlyOneClass(Watcher):
    """Cross entropy gets logits for one class.

    Why: the softmax of one number is 1: the loss is always 0 and nothing is learned.

    Bad:
        head = nn.Linear(4, 1)
        loss = F.cross_entropy(head(x), torch.zeros(8).long())  # here

    Good:
        head = nn.Linear(4, 1)
        loss = F.binary_cross_entropy_with_logits(head(x), torch.zeros(8, 1))

    Fix: two outputs, or binary_cross_entropy_with_logits with one.
    """

    code = "LOSS018"

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Report a class dimension of one."""
        shape = tuple(loss.input.shape)
        if loss.name in ("cross_entropy", "nll_loss") and len(shape) > 1 and shape[1] == 1:
            if not loss.target.is_floating_point():
                yield Observation(
                    loss.place, "Cross entropy over one class is always 0.", BUG, {"logits": shape}
                )
