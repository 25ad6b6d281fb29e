# SPDX-License-Identifier: Apache-2.0
"""A gradient penalty that has no gradient."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.flow import goes_backward
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.rewriting import Edits, with_keyword
from truestep.doctor.source.values import argument, constant, forwards_all


class PenaltyWithoutGraph(SourceCheck):
    """Gradients from autograd.grad go into the loss, but were taken without create_graph=True.

    Why: they are constants then: the penalty is added to the loss and changes no weight.

    Bad:
        inputs = x.requires_grad_()
        loss = F.cross_entropy(net(inputs), y)
        (grad,) = torch.autograd.grad(loss, inputs, retain_graph=True)  # here
        penalty = grad.pow(2).sum()
        (loss + penalty).backward()

    Good:
        inputs = x.requires_grad_()
        loss = F.cross_entropy(net(inputs), y)
        (grad,) = torch.autograd.grad(loss, inputs, create_graph=True)
        penalty = grad.pow(2).sum()
        (loss + penalty).backward()

    Fix: create_graph=True.
    """

    code = "GRAD043"
    words = ("autograd",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a call whose result a backward reaches, be it behind the calls of the function around."""
        for call in module.calls("torch.autograd.grad"):
            asked = argument(call, 4, "create_graph")
            if forwards_all(call) or (asked is not None and constant(asked) is not False):
                continue
            if goes_backward(module, call) and not _is_a_gradient(module, call):
                yield At(
                    call, "Taken without create_graph=True: what is made of it gives the loss no gradient."
                )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Ask for the graph."""
        return [with_keyword(module, node, "create_graph", "True")]


def _is_a_gradient(module: SourceModule, call: ast.Call) -> bool:
    """Tell a result that is only handed to `x.backward(gradient)`: it goes on from there, and needs no graph."""
    statement = module.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = [
        each.elts[0] if isinstance(each, ast.Tuple) and len(each.elts) == 1 else each for each in targets
    ]
    reads = [use for each in names if (name := dotted(each)) for use in module.reads(name)]
    mine = [use for use in reads if module.scope(use) is module.scope(call)]
    while mine and all(isinstance(module.parents[use], ast.Subscript) for use in mine):
        mine = [above for use in mine if isinstance(above := module.parents[use], ast.Subscript)]
    return bool(mine) and all(
        isinstance(above := module.parents[use], ast.Call)
        and isinstance(above.func, ast.Attribute)
        and above.func.attr == "backward"
        and use in above.args
        for use in mine
    )
