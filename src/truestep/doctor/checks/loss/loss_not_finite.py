# SPDX-License-Identifier: Apache-2.0
"""The first NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.runtime.looking import watched_on_host
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    import torch

    from truestep.doctor.runtime.history import WatchHistory


class LossNotFinite(Watcher):
    """A loss that is NaN or infinite goes backward.

    Why: every weight that it reaches becomes NaN in the next step, for good.

    Bad:
        loss = F.cross_entropy(net(x) / 0.0, y)
        loss.backward()  # here

    Good:
        loss = F.cross_entropy(net(x), y)
        loss.backward()

    Fix: look for log(0), sqrt(0), division by 0, and a rate that is too high;
    torch.autograd.set_detect_anomaly names the operation.

    Evidence: the plain form of row 51 of docs/mistakes.md.
    """

    code = "LOSS019"

    def __init__(self) -> None:
        self.waiting: list[
            tuple[torch.Tensor, Place, int]
        ] = []  # on a device: read at the end, without a wait

    def on_backward(
        self, history: WatchHistory, tensors: tuple[torch.Tensor, ...], place: Place
    ) -> Observations:
        """Read it at once on the host; keep the answer of a device for later."""
        for tensor in tensors:
            if not watched_on_host(tensor):
                self.waiting.append((tensor.detach().isfinite().all(), place, history.num_steps + 1))
            elif not bool(tensor.detach().isfinite().all()):
                yield self._saw(place, history.num_steps + 1)

    def on_finish(self, history: WatchHistory) -> Observations:
        """Read what is known by now."""
        for finite, place, step in self.waiting:
            if not bool(finite):
                yield self._saw(place, step)

    def _saw(self, place: Place, step: int) -> Observation:
        return Observation(place, f"The loss is not finite at step {step}.", BUG, {"step": step})
