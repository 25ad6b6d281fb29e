# SPDX-License-Identifier: Apache-2.0
"""Losses of many steps still in memory."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    import torch

    from truestep.doctor.runtime.history import WatchHistory

STEPS = 10


class LossesKeptAlive(Watcher):
    """The loss tensors of all the last steps are still alive.

    Why: something stores them with their graph: memory grows with every step.

    Bad:
        history = []
        for _ in range(4):
            for x, y in loader:
                opt.zero_grad()
                losses = [F.cross_entropy(net(x), y)]
                losses[0].backward()  # here
                opt.step()
                history += losses

    Good:
        history = []
        for _ in range(4):
            for x, y in loader:
                opt.zero_grad()
                losses = [F.cross_entropy(net(x), y)]
                losses[0].backward()
                opt.step()
                history += [loss.detach() for loss in losses]

    Fix: store loss.detach().
    """

    code = "MEM004"

    def __init__(self) -> None:
        self.kept: list[weakref.ref[torch.Tensor]] = []

    def on_backward(
        self, history: WatchHistory, tensors: tuple[torch.Tensor, ...], place: Place
    ) -> Observations:
        """Count how many of the last losses are alive, each a tensor of its own."""
        alive = {id(tensor) for tensor in (each() for each in self.kept) if tensor is not None}
        if len(alive) >= STEPS:
            self.kept.clear()
            text = f"The losses of the last {len(alive)} steps are all still alive, with their graphs."
            yield Observation(place, text, RISK, {"losses_alive": len(alive)})
        self.kept += [weakref.ref(each) for each in tensors]
        del self.kept[: -2 * STEPS]
