# SPDX-License-Identifier: Apache-2.0
"""`backward(create_graph=True)` to read one gradient."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, literal


class BackwardForAPenalty(SourceCheck):
    """A gradient penalty reads .grad after backward(create_graph=True).

    Why: backward adds to the gradients of all weights too, and .grad and the graph keep each other alive: memory
    grows.

    Bad:
        mixed = (0.5 * x).requires_grad_()
        out = net(mixed).sum()
        out.backward(create_graph=True)  # here
        penalty = (mixed.grad.norm(2, dim=1) - 1).pow(2).mean()

    Good:
        mixed = (0.5 * x).requires_grad_()
        out = net(mixed).sum()
        (grad,) = torch.autograd.grad(out, mixed, create_graph=True)
        penalty = (grad.norm(2, dim=1) - 1).pow(2).mean()

    Fix: torch.autograd.grad(out, mixed, create_graph=True), which touches no .grad.
    """

    code = "GRAD044"
    words = ("create_graph",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a backward where the same function reads a .grad."""
        for call in module.method_calls("backward"):
            if literal(module, argument(call, 2, "create_graph")) is True:
                scope = module.scope(call)
                read = [
                    each
                    for each in module.all(ast.Attribute)
                    if each.attr == "grad" and module.scope(each) is scope
                ]
                if any(isinstance(each.ctx, ast.Load) and each.lineno > call.lineno for each in read):
                    yield At(call, "The penalty's backward also adds to every weight's gradient.", RISK)
