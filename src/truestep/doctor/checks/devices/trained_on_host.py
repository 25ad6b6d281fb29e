# SPDX-License-Identifier: Apache-2.0
"""A GPU that has nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import ADVICE
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

LARGE = 100_000  # elements; a smaller model may well be faster on the CPU


class TrainedOnHost(Watcher):
    """The model is trained on the CPU although torch sees a GPU.

    Why: a forgotten .to(device), or a device chosen by an option that was not given: correct, and slow.

    Bad:
        large = nn.Linear(1000, 500)
        opt = torch.optim.SGD(large.parameters(), lr=0.1)  # here
        large(torch.randn(8, 1000)).square().mean().backward()
        opt.step()

    Good:
        device = torch.accelerator.current_accelerator() or torch.device("cpu")
        large = nn.Linear(1000, 500).to(device)
        opt = torch.optim.SGD(large.parameters(), lr=0.1)
        large(torch.randn(8, 1000, device=device)).square().mean().backward()
        opt.step()

    Fix: model.to(device), and each batch too.
    """

    code = "DEV007"

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report the first step of a large model on the CPU, where there is a GPU."""
        import torch

        if record.num_steps or not torch.cuda.is_available():
            return
        held = list(record.parameters())
        size = sum(each.numel() for each in held)
        if size >= LARGE and all(each.device.type == "cpu" for each in held):
            text = f"{size:,} parameters are trained on the CPU; torch sees {torch.cuda.device_count()} GPU."
            yield Observation(record.place, text, ADVICE, {"parameters": size})
