# SPDX-License-Identifier: Apache-2.0
"""Batch norm that is frozen, and moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import QUESTION
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Saw, Sights, Watcher

if TYPE_CHECKING:
    from truestep.doctor.watching.scene import OptimizerRecord, Scene

AFTER = 4


class FrozenNormMoves(Watcher):
    """Batch norm layers are frozen, but in training mode.

    Why: requires_grad_(False) stops their weights; their running statistics follow the new data all the same.

    Bad:
        body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        net = nn.Sequential(body, nn.Linear(8, 3))
        opt = torch.optim.SGD(net[1].parameters(), lr=0.1)
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()  # here

    Good:
        body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        net = nn.Sequential(body, nn.Linear(8, 3))
        opt = torch.optim.SGD(net[1].parameters(), lr=0.1)
        for _ in range(3):
            body.eval()
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: body.eval() after each net.train(); if they are meant to adapt, `# truestep: ignore[EVAL011]`.
    """

    code = "EVAL011"

    def on_step(self, scene: Scene, record: OptimizerRecord, place: Place) -> Sights:
        """Ask, some steps in, about frozen norms in training mode of a model that is trained."""
        from torch import nn

        if record.num_steps != AFTER:
            return
        for model in list(scene.models):
            norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
            moving = [each for each in norms if each.training and each.track_running_stats and each.affine]
            frozen = [
                each
                for each in moving
                if not each.weight.requires_grad and int(each.num_batches_tracked or 0)
            ]
            if frozen and scene.is_trained(model):
                text = f"{len(frozen)} frozen batch norm layers are in training mode: their statistics move."
                yield Saw(place, text, QUESTION, {"layers": len(frozen)})
