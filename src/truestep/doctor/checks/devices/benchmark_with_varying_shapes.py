# SPDX-License-Identifier: Apache-2.0
"""cudnn.benchmark where every batch has another shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import ADVICE
from truestep.doctor.runtime.history import ForwardCall
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory

SHAPES = 6  # of inputs; a short last batch and another size for evaluation are as usual


class BenchmarkWithVaryingShapes(Watcher):
    """cudnn.benchmark is on, and the inputs of a convolutional model keep changing their shape.

    Why: for each new shape cuDNN tries all its algorithms anew: on a GPU that is slower than without.

    Bad:
        torch.backends.cudnn.benchmark = True
        conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        for size in range(8, 20):
            conv(torch.randn(2, 1, size, size))  # here
        torch.backends.cudnn.benchmark = False

    Good:
        torch.backends.cudnn.benchmark = True
        conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        for size in range(8, 20):
            conv(torch.randn(2, 1, 16, 16))
        torch.backends.cudnn.benchmark = False

    Fix: leave it off, or pad the inputs to a few sizes.
    """

    code = "DEV008"

    def __init__(self) -> None:
        self.shapes: set[tuple[int, ...]] = set()

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> Observations:
        """Count the shapes that a model with convolutions is given while benchmark is on."""
        import torch

        if len(self.shapes) >= SHAPES or not torch.backends.cudnn.benchmark:
            return
        given = forward.numbers
        convolutions = (torch.nn.modules.conv._ConvNd,)
        if given is not None and any(isinstance(each, convolutions) for each in forward.module.modules()):
            self.shapes.add(tuple(given.shape))
            if len(self.shapes) == SHAPES:
                text = f"cudnn.benchmark is on, and {SHAPES} different input shapes came so far."
                yield Observation(forward.place, text, ADVICE, {"shapes": sorted(self.shapes)[:3]})
