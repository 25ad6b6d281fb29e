# SPDX-License-Identifier: Apache-2.0
"""A loss over shapes that don't match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.watcher import Loss, Saw, Sights, Watcher

if TYPE_CHECKING:
    from truestep.doctor.watching.scene import Scene

ELEMENTWISE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "gaussian_nll_loss", "poisson_nll_loss")


class ShapesBroadcast(Watcher):
    """The prediction and the target of a loss have different shapes, and are broadcast.

    Why: (n, 1) against (n,) becomes (n, n): every prediction is compared with every target; the best is
    the mean.

    Bad:
        head = nn.Linear(4, 1)
        loss = F.mse_loss(head(x), y.float())  # here

    Good:
        head = nn.Linear(4, 1)
        loss = F.mse_loss(head(x).squeeze(1), y.float())

    Fix: squeeze or unsqueeze one of them; assert that the shapes are equal.
    """

    code = "LOSS017"

    def on_loss(self, scene: Scene, loss: Loss) -> Sights:
        """Report shapes that differ, unless one of them is a single number."""
        given, target = tuple(loss.input.shape), tuple(loss.target.shape)
        if loss.name in ELEMENTWISE and given != target and min(loss.input.numel(), loss.target.numel()) > 1:
            evidence = {"prediction": given, "target": target}
            yield Saw(loss.place, f"{loss.name} broadcasts {given} against {target}.", BUG, evidence)
