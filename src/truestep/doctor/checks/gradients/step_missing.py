# SPDX-License-Identifier: Apache-2.0
"""Gradients computed and never used."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule


class StepMissing(SourceCheck):
    """An optimizer is made and backward() runs in a loop, but nothing ever calls step().

    Why: the weights never change; the loss moves only because the batches differ.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()  # here

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: call optimizer.step() after backward().
    """

    code = "GRAD007"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loop that clears an optimizer and goes backward, in a file that steps nothing."""
        if any(module.kind(_receiver(call)) != "scheduler" for call in module.method_calls("step")):
            return
        for trace in module.traces:
            for backward in trace.of("backward"):
                path = backward.loop_path()
                cleared = [
                    e
                    for e in trace.within(path, "zero_grad")
                    if e.receiver and module.kind(e.receiver) == "optimizer"
                ]
                if path and cleared and not trace.within(path, "unknown"):
                    yield At(
                        backward.node,
                        "Gradients are computed and cleared in the loop, but nothing calls step().",
                    )
                    break


def _receiver(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)
    return call.func.value
