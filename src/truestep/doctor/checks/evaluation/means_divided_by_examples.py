# SPDX-License-Identifier: Apache-2.0
"""Means of batches divided by examples."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.losses import losses_of, reduction_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.numbers import option_default, whole_numbers
from truestep.doctor.source.values import argument, forwards_all, origins


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
            loader = _loader_of(module, length)
            if not (isinstance(node.op, ast.Div) and isinstance(total, ast.Name) and loader is not None):
                continue
            added = [
                each.node
                for each in module.bindings(total)
                if isinstance(each.node, ast.AugAssign) and isinstance(each.node.op, ast.Add)
            ]
            sizes = _batch_sizes(module, loader)
            if added and 1 not in sizes and all(_is_mean_loss(module, each.value) for each in added):
                text = f"{total.id!r} is a sum over batches, divided by a number of examples."
                yield At(node, text, RISK if None in sizes else BUG)


def _loader_of(module: SourceModule, length: ast.expr) -> ast.expr | None:
    """Return the loader of `len(loader.dataset)`."""
    if not (isinstance(length, ast.Call) and module.qualify(length.func) == "len" and len(length.args) == 1):
        return None
    data = length.args[0]
    return data.value if isinstance(data, ast.Attribute) and data.attr == "dataset" else None


def _batch_sizes(module: SourceModule, loader: ast.expr) -> set[int | None]:
    """Return how many examples its batches may hold; None where it can't be seen."""
    found: set[int | None] = set()
    for each in origins(module, loader):
        if not isinstance(each, ast.Call) or module.kind(each) != "loader" or forwards_all(each):
            found.add(None)
        else:
            found |= _sizes_given(module, argument(each, 1, "batch_size"))
    return found


def _sizes_given(module: SourceModule, size: ast.expr | None) -> set[int | None]:
    if size is None:
        return {1}  # the loader's own default
    found = whole_numbers(module, size)
    return {option_default(module, size)} if found == {None} else found


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
