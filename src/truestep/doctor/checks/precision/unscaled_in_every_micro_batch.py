# SPDX-License-Identifier: Apache-2.0
"""`unscale_` and `update` outside of the test of the step."""

from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.module import SourceModule


class UnscaledInEveryMicroBatch(SourceCheck):
    """Gradients are unscaled, or the scale is updated, in every micro-batch, and the step waits for several.

    Why: the next micro-batch adds scaled gradients to unscaled ones, and a second unscale_ before update() raises.

    Bad:
        scaler = torch.amp.GradScaler("cuda")
        for i, (x, y) in enumerate(loader):
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            scaler.unscale_(opt)  # here
            if is_update_step(i):
                scaler.step(opt)
                opt.zero_grad()
            scaler.update()

    Good:
        scaler = torch.amp.GradScaler("cuda")
        for i, (x, y) in enumerate(loader):
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            if is_update_step(i):
                scaler.unscale_(opt)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()

    Fix: unscale, step and update under the same test.
    """

    code = "AMP011"
    words = ("unscale_",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an unscale_ between the backwards of a window."""
        for trace in module.traces:
            for loop in trace.training_loops():
                run = execution_of(trace, loop.path)
                windows = run.full_windows(loop.optimizer) if run.is_certain else []
                inside = [[event for _, event in each.between("unscale")] for each in windows]
                if inside and all(inside):
                    text = "Unscaled in every micro-batch, while the step waits for several."
                    yield At(inside[0][0].node, text, RISK)
