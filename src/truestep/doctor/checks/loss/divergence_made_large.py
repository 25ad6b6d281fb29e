# SPDX-License-Identifier: Apache-2.0
"""A KL divergence that is added with the wrong sign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory

STEPS = 3  # so many show the same


class DivergenceMadeLarge(Watcher):
    """The divergence of a latent Gaussian from the standard one is made larger, not smaller.

    Why: it is never negative, so a loss that takes it away falls without bound: the latents drift off, and samples of
    N(0, 1) decode to nothing.

    Bad:
        for x, y in loader:
            mean, logvar = net(x)[:, :1], net(x)[:, 1:2]
            kl = 0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()  # here
            loss = (net(x) - 1).pow(2).mean() + kl
            opt.zero_grad()
            loss.backward()
            opt.step()

    Good:
        for x, y in loader:
            mean, logvar = net(x)[:, :1], net(x)[:, 1:2]
            kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
            loss = (net(x) - 1).pow(2).mean() + kl
            opt.zero_grad()
            loss.backward()
            opt.step()

    Fix: recon + beta * kl with kl = -0.5 * (1 + logvar - mean**2 - exp(logvar)), which is 0 or more.
    """

    code = "LOSS051"

    def __init__(self) -> None:
        self.seen: dict[Place, int] = {}

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Look for the divergence among the terms."""
        from truestep.doctor.runtime.divergences import divergences_in_loss

        for term, found in divergences_in_loss(history, tensors):
            if found.sign * term.weight >= 0:
                continue
            self.seen[term.added_at] = self.seen.get(term.added_at, 0) + 1
            if self.seen[term.added_at] == STEPS:
                text = (
                    "The KL divergence from N(0, 1) enters the loss with a minus: training makes it larger."
                )
                evidence = {"kl": abs(term.value or 0.0), "weight": term.weight * found.sign}
                yield Observation(term.added_at, text, BUG, evidence)
