# SPDX-License-Identifier: Apache-2.0
"""A training_step that returns a number."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.behind import has_no_graph
from truestep.doctor.source.libraries import gives_loss
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import constant


class TrainingStepWithoutGraph(SourceCheck):
    """The loss that a library is to take backward is detached, a number, or was computed under no_grad().

    Why: nothing is behind it, so no weight gets a gradient; some versions fail, others go on and learn nothing.

    Bad:
        class Task(lightning.LightningModule):
            def training_step(self, batch, index):
                x, y = batch
                loss = F.cross_entropy(self(x), y)
                return loss.detach()  # here

    Good:
        class Task(lightning.LightningModule):
            def training_step(self, batch, index):
                x, y = batch
                loss = F.cross_entropy(self(x), y)
                return loss

    Fix: return the loss itself; detach what is logged or kept.
    """

    code = "GRAD052"
    words = ("training_step", "compute_loss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report what such a method returns as its loss, if no way to it leaves the graph."""
        for function in module.functions:
            if not gives_loss(module, function):
                continue
            for given in module.returns(function):
                losses = _losses_in(module, given.value)
                if losses and all(has_no_graph(module, each) for each in losses):
                    yield At(given, "The loss that is given back has no graph: backward() reaches no weight.")


def _losses_in(module: SourceModule, node: ast.expr | None, depth: int = 0) -> list[ast.expr]:
    """Return what is taken for the loss: the value, the first of a tuple, what stands under "loss"."""
    if node is None or depth > MAX_DEPTH or (isinstance(node, ast.Constant) and constant(node) is None):
        return []
    match node:
        case ast.IfExp():
            return _losses_in(module, node.body, depth + 1) + _losses_in(module, node.orelse, depth + 1)
        case ast.Tuple(elts=[first, *_]):
            return [first]
        case ast.Dict():
            return [each for each in module.resolver.part_of(node, "loss") or [] if each is not None]
        case ast.Name() | ast.Attribute():
            values = [each for each in module.definitions(node) if isinstance(each, ast.Dict | ast.Tuple)]
            inner = [loss for each in values for loss in _losses_in(module, each, depth + 1)]
            return inner or [node]
    return [node]
