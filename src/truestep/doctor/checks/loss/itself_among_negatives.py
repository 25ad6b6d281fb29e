# SPDX-License-Identifier: Apache-2.0
"""Contrasts in which each example has itself to compete with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import LossCall, WatchHistory

LEAST = 4  # examples
NEGLIGIBLE = 12.0  # so far beneath the largest logit nothing counts any more


class ItselfAmongNegatives(Watcher):
    """Cross entropy over the similarities of a batch with itself counts each example as a negative of its own.

    Why: an example is most like itself, so the loss pushes it away from where it is, and the real negatives weigh less.

    Bad:
        for x, _ in loader:
            views = F.normalize(net(torch.cat([x, x + 0.1 * torch.randn_like(x)])), dim=1)
            logits = views @ views.T / 0.5
            opt.zero_grad()
            F.cross_entropy(logits, torch.arange(16).roll(8)).backward()  # here
            opt.step()

    Good:
        for x, _ in loader:
            views = F.normalize(net(torch.cat([x, x + 0.1 * torch.randn_like(x)])), dim=1)
            logits = (views @ views.T / 0.5).fill_diagonal_(float("-inf"))
            opt.zero_grad()
            F.cross_entropy(logits, torch.arange(16).roll(8)).backward()
            opt.step()

    Fix: logits.fill_diagonal_(float("-inf")) before cross entropy; 0 is a similarity like any other.
    """

    code = "LOSS054"

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Look for a square that is the same from both sides, whose diagonal counts and is never the target."""
        import torch

        logits, targets = loss.input.detach(), loss.target
        count = len(logits) if logits.dim() else 0
        if loss.name != "cross_entropy" or count < LEAST or tuple(logits.shape) != (count, count):
            return
        if targets.is_floating_point() or tuple(targets.shape) != (count,):
            return
        own = logits.diagonal()
        by_itself = bool((targets == torch.arange(count, device=targets.device)).any())
        alike = bool(own.isfinite().all()) and torch.allclose(own, own[0].expand(count), rtol=1e-3, atol=1e-4)
        if by_itself or not alike or not torch.allclose(logits, logits.T, rtol=1e-3, atol=1e-4):
            return
        others = logits.clone().fill_diagonal_(float("-inf")).amax(1)
        if bool((own > others - NEGLIGIBLE).all()) and bool((logits != logits[0, 0]).any()):
            text = f"Each of the {count} examples is among its own negatives, with a logit of {float(own[0]):.4g}."
            yield Observation(loss.place, text, BUG, {"number": count, "own_logit": float(own[0])})
