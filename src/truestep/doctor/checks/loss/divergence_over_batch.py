# SPDX-License-Identifier: Apache-2.0
"""A KL divergence that is summed over the wrong axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory

STEPS = 3  # so many show the same


class DivergenceOverBatch(Watcher):
    """The divergence of latent Gaussians is summed over the batch, and averaged over the latent dimensions.

    Why: it is to be summed over the dimensions of each example: so it weighs batch / dimensions times as much as meant,
    and its weight changes with the size of the batch.

    Bad:
        for x, y in loader:
            mean, logvar = net(x)[:, :1], net(x)[:, 1:2]
            mean, logvar = torch.cat([mean, mean + 1], 1), torch.cat([logvar, logvar], 1)
            kl = (-0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(0)).mean()  # here
            loss = (net(x) - 1).pow(2).mean() + kl
            opt.zero_grad()
            loss.backward()
            opt.step()

    Good:
        for x, y in loader:
            mean, logvar = net(x)[:, :1], net(x)[:, 1:2]
            mean, logvar = torch.cat([mean, mean + 1], 1), torch.cat([logvar, logvar], 1)
            kl = (-0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1)).mean()
            loss = (net(x) - 1).pow(2).mean() + kl
            opt.zero_grad()
            loss.backward()
            opt.step()

    Fix: .sum(1).mean(), or .sum(dim=-1).mean(): over the latent dimensions first.
    """

    code = "LOSS053"

    def __init__(self) -> None:
        self.seen: dict[Place, int] = {}

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Look for the divergence among the terms."""
        from truestep.doctor.runtime.divergences import divergences_in_loss

        for term, found in divergences_in_loss(history, tensors):
            if found.count != found.dimensions or found.count in (1, found.examples):
                continue
            at = term.origin.place if term.origin is not None else term.added_at
            self.seen[at] = self.seen.get(at, 0) + 1
            if self.seen[at] == STEPS:
                text = (
                    f"The KL divergence is summed over {found.examples} examples and averaged over "
                    f"{found.dimensions} dimensions."
                )
                yield Observation(at, text, RISK, {"number": found.examples, "dimensions": found.dimensions})
