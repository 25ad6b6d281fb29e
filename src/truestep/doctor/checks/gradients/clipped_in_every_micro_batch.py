# SPDX-License-Identifier: Apache-2.0
"""Gradients clipped before they have added up."""

from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.module import SourceModule


class ClippedInEveryMicroBatch(SourceCheck):
    """Gradients are clipped at every micro-batch, and the optimizer steps after several.

    Why: each clip shrinks what earlier batches added again, so the last ones weigh most, and the sum is not bounded.

    Bad:
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # here
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                opt.step()
                opt.zero_grad()

    Good:
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(net(x), y) / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
                opt.zero_grad()

    Fix: clip once, right before the step; with Accelerate under `if accelerator.sync_gradients`.
    """

    code = "GRAD061"
    words = ("clip_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report what clips between the backwards of every window that has several."""
        for trace in module.traces:
            for loop in trace.training_loops():
                run = execution_of(trace, loop.path)
                windows = run.full_windows(loop.optimizer) if run.is_certain else []
                clips = [[event for _, event in each.between("clip")] for each in windows]
                meant = all(each.adds_up for each in windows) and any(
                    each.of("zero_grad") for each in windows
                )
                if clips and all(clips) and meant:
                    yield At(clips[0][0].node, "Clipped before the gradients of all batches are there.", RISK)
