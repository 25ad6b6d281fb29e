# SPDX-License-Identifier: Apache-2.0
"""Gradients cleared in the micro-batch that steps, before its backward."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.windows import statements_of, under_test, window_test


class ClearedBeforeLastBackward(SourceCheck):
    """The batch that steps clears the gradients before its own backward.

    Why: what the micro-batches before it added is thrown away: only the last one counts.

    Bad:
        def is_update(step):
            return step % accumulation == 0

        for step, (x, y) in enumerate(loader):
            if is_update(step):
                opt.zero_grad()  # here
            F.cross_entropy(net(x), y).backward()
            if is_update(step):
                opt.step()

    Good:
        def is_update(step):
            return step % accumulation == 0

        for step, (x, y) in enumerate(loader):
            F.cross_entropy(net(x), y).backward()
            if is_update(step):
                opt.step()
                opt.zero_grad()

    Fix: clear after the step.
    """

    code = "GRAD047"
    words = ("zero_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clear under the test of the step, with a backward between them that every batch runs."""
        for loop in module.all(ast.For, ast.While):
            calls = statements_of(module, loop)
            for step in (each for each in calls if each[0] == "step"):
                test = window_test(module, step[1], loop)
                if test is None:
                    continue
                clears = [
                    each
                    for each in calls
                    if each[0] == "zero_grad" and under_test(module, each[1], test, loop)
                ]
                plain = [
                    each
                    for each in calls
                    if each[0] == "backward" and not under_test(module, each[1], test, loop)
                ]
                for _, clear in clears:
                    lines = [each.lineno for _, each in plain]
                    if any(clear.lineno < line < step[1].lineno for line in lines) and len(clears) == 1:
                        yield At(clear, "Cleared in the batch that steps, before its backward.", RISK)
