# SPDX-License-Identifier: Apache-2.0
"""Cross entropy of nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.runtime.looking import watched_on_host
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


class EveryTargetIgnored(Watcher):
    """All targets of a batch are ignore_index.

    Why: the mean over no targets is NaN, which reaches every weight.

    Bad:
        loss = F.cross_entropy(net(x), torch.full((8,), -100))  # here

    Good:
        loss = F.cross_entropy(net(x), y)

    Fix: skip such batches, or sum the losses and divide by max(count, 1).

    Evidence: the plain form of row 44 of docs/mistakes.md.
    """

    code = "LOSS020"

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Report targets that are all equal to it."""
        ignored = loss.options.get("ignore_index", -100)
        if loss.name not in ("cross_entropy", "nll_loss") or loss.target.is_floating_point():
            return
        if loss.target.numel() and watched_on_host(loss.target) and bool((loss.target == ignored).all()):
            evidence = {"targets": loss.target.numel(), "ignore_index": ignored}
            yield Observation(
                loss.place, f"All {loss.target.numel()} targets are ignored: the loss is NaN.", BUG, evidence
            )
