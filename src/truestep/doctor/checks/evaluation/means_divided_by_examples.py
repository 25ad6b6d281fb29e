# SPDX-License-Identifier: Apache-2.0
"""Means of batches divided by examples."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.losses import losses_of, reduction_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, origins


class MeansDividedByExamples(SourceCheck):
    """The mean losses of the batches are summed and divided by the number of examples.

    Why: the sum counts batches: the reported loss is too small by a factor of the batch size.

    Bad:
        total = 0.0
        for x, y in test_loader:
            total += F.cross_entropy(net(x), y).item()
        print(total / len(test_loader.dataset))  # here

    Good:
        total = 0.0
        for x, y in test_loader:
            total += F.cross_entropy(net(x), y, reduction="sum").item()
        print(total / len(test_loader.dataset))

    Fix: add loss.item() * len(x), or use reduction="sum"; len(loader) weighs the last batch wrongly.
    """

    code = "EVAL018"
    words = (".dataset)",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the division of a total to which nothing but mean losses is added."""
        divisions: list[ast.BinOp | ast.AugAssign] = [*module.all(ast.BinOp), *module.all(ast.AugAssign)]
        for node in divisions:
            total = node.left if isinstance(node, ast.BinOp) else node.target
            length = node.right if isinstance(node, ast.BinOp) else node.value
            if isinstance(node.op, ast.Div) and isinstance(total, ast.Name) and _of_data_set(module, length):
                added = [
                    each.node
                    for each in module.bindings(total)
                    if isinstance(each.node, ast.AugAssign) and isinstance(each.node.op, ast.Add)
                ]
                if added and all(_is_mean_loss(module, each.value) for each in added):
                    yield At(node, f"{total.id!r} is a sum over batches, divided by a number of examples.")


def _of_data_set(module: SourceModule, node: ast.expr) -> bool:
    """Tell whether this is len(loader.dataset), of a loader whose batches hold several examples."""
    if not (isinstance(node, ast.Call) and module.qualify(node.func) == "len" and len(node.args) == 1):
        return False
    data = node.args[0]
    if not (isinstance(data, ast.Attribute) and data.attr == "dataset"):
        return False
    loaders = [each for each in origins(module, data.value) if isinstance(each, ast.Call)]
    return all(constant(argument(each, 1, "batch_size") or ast.Constant(1)) != 1 for each in loaders)


def _is_mean_loss(module: SourceModule, value: ast.expr) -> bool:
    """Tell whether all that is added is the mean loss of a batch, as a number."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item":
        value = value.func.value
    losses = set(losses_of(module))
    found = list(origins(module, value))
    return bool(found) and all(
        isinstance(each, ast.Call) and each in losses and reduction_of(module, each) in (None, "mean")
        for each in found
    )
