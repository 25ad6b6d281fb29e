# SPDX-License-Identifier: Apache-2.0
"""A batch of one example, repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.watcher import Forward, Saw, Sights, Watcher
from truestep.doctor.watching.looking import first_tensor, is_on_host

if TYPE_CHECKING:
    from truestep.doctor.watching.scene import Scene

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

    def on_forward(self, scene: Scene, forward: Forward) -> Sights:
        """Compare the examples of the first batches that are trained on."""
        given = first_tensor(forward.args)
        trained = forward.module.training and forward.gradients_on and scene.in_window
        if not trained or self.batches < 0 or given is None or not is_on_host(given):
            return
        if given.dim() < 2 or len(given) < 4:
            return
        if not bool((given[1:] == given[:1]).all()):
            self.batches = -1  # from then on nothing is compared
            return
        self.batches += 1
        if self.batches == TIMES:
            text = f"All {len(given)} examples of a batch are the same, {TIMES} batches in a row."
            yield Saw(forward.place, text, RISK, {"shape": tuple(given.shape)})
