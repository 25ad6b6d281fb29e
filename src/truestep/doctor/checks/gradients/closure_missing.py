# SPDX-License-Identifier: Apache-2.0
"""LBFGS without its closure."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import is_call_of


class ClosureMissing(SourceCheck):
    """LBFGS.step() is called without a closure.

    Why: it evaluates the loss several times per step: TypeError without a function that does so.

    Bad:
        opt = torch.optim.LBFGS(net.parameters())
        opt.step()  # here

    Good:
        def closure():
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        opt = torch.optim.LBFGS(net.parameters())
        opt.step(closure)

    Fix: opt.step(closure).
    """

    code = "GRAD021"
    words = ("LBFGS",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a step without arguments on a name that is LBFGS for certain."""
        for call in module.method_calls("step"):
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            values = (
                module.definitions(base) if base is not None and not call.args and not call.keywords else []
            )
            if values and all(is_call_of(module, each, "torch.optim.LBFGS") for each in values):
                yield At(call, "LBFGS.step() needs a closure: TypeError.")
