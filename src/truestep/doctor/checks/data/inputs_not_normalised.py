# SPDX-License-Identifier: Apache-2.0
"""Pixels from 0 to 255."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.runtime.tensor_queries import is_readable_without_sync
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory


class InputsNotNormalised(Watcher):
    """The model's inputs are whole numbers up to 255, or far from mean 0 and deviation 1.

    Why: default initialisations expect inputs of size about 1; large ones saturate units and make the
    first steps wild.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=1e-4)
        for x, y in loader:
            pixels = (x.abs() * 60).clamp(0, 255).round()
            opt.zero_grad()
            F.cross_entropy(net(pixels), y).backward()  # here
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: divide by 255, subtract the training set's mean, divide by its deviation.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/077/main.py:14.
    """

    code = "DATA017"
    looks_inside = True

    def __init__(self) -> None:
        self.judged = False

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> Observations:
        """Look at the first floating-point input of a model in training."""
        given = forward.numbers
        if (
            self.judged
            or given is None
            or not given.is_floating_point()
            or not forward.module.training
            or given.dim() < 2
        ):
            return
        if not is_readable_without_sync(given) or given.numel() < 16 or not forward.gradients_on:
            return
        self.judged = True
        largest = float(given.abs().max())
        whole = bool((given == given.round()).all()) and 30 < largest <= 255 and float(given.min()) >= 0
        if whole and float(given.mean()) > 5:
            evidence = {"mean": float(given.mean()), "deviation": float(given.std()), "largest": largest}
            yield Observation(
                forward.place,
                f"The inputs are whole numbers up to {largest:.0f}, like raw pixels.",
                RISK,
                evidence,
            )
