# SPDX-License-Identifier: Apache-2.0
"""`unscale_` and `update` outside of the test of the step."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.windows import statements_of, under_test, window_test


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
        """Report an unscale_ outside of the test that the scaler's step stands under."""
        for loop in module.all(ast.For, ast.While):
            calls = statements_of(module, loop)
            tests = [window_test(module, call, loop) for method, call in calls if method == "step"]
            for test in {each for each in tests if each is not None}:
                for method, call in calls:
                    if method == "unscale_" and not under_test(module, call, test, loop):
                        yield At(
                            call, "Unscaled in every micro-batch, while the step waits for several.", RISK
                        )
