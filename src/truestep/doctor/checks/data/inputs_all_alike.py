# SPDX-License-Identifier: Apache-2.0
"""A batch of one example, repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.runtime.looking import watched_on_host
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

TIMES = 3


class InputsAllAlike(Watcher):
    """All examples of the first batches are the same.

    Why: the model can't tell the labels apart: a wrong index, a file read once, or a constant in its place.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            inputs = x[0].expand(len(x), -1)
            F.cross_entropy(net(inputs), y).backward()  # here
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: look at a batch: what does the data set's __getitem__ do with its index?
    """

    code = "DATA021"

    def __init__(self) -> None:
        self.batches = 0
        self.alike: Observation | None = None  # of the last forward, until something goes backward

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Compare the examples of the first batches that are trained on."""
        given = forward.numbers
        self.alike = None
        trained = forward.module.training and forward.gradients_on and history.in_window
        if not trained or self.batches < 0 or given is None or not watched_on_host(given):
            return
        if given.dim() < 2 or len(given) < 4:
            return
        if not bool((given[1:] == given[:1]).all()):
            self.batches = -1  # from then on nothing is compared
            return
        text = f"All {len(given)} examples of a batch are the same, {TIMES} batches in a row."
        self.alike = Observation(forward.place, text, RISK, {"shape": tuple(given.shape)})

    def on_backward(self, history: WatchHistory, tensors: object, place: Place) -> Observations:
        """Count the batches that were trained on; pictures drawn in between may well be alike."""
        alike, self.alike = self.alike, None
        if alike is not None:
            self.batches += 1
            if self.batches == TIMES:
                yield alike
