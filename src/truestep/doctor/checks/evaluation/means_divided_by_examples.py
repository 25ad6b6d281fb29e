# SPDX-License-Identifier: Apache-2.0
"""Means of batches divided by examples."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.numbers import option_default, whole_numbers
from truestep.doctor.source.reductions import is_mean
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import argument, forwards_all, value_origins


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

    Fix: add loss.item() * len(x) for each batch, or use reduction="sum", and divide by the number of examples.
    To divide by len(loader) counts a short last batch as a full one.
    """

    code = "EVAL018"
    words = ("/",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the division of a total to which nothing but means of batches is added."""
        yield from _divided_again(module)
        divisions: list[ast.BinOp | ast.AugAssign] = [*module.all(ast.BinOp), *module.all(ast.AugAssign)]
        for node in divisions:
            total = node.left if isinstance(node, ast.BinOp) else node.target
            length = node.right if isinstance(node, ast.BinOp) else node.value
            if not (isinstance(node.op, ast.Div) and isinstance(total, ast.Name)) or _is_rescaled(
                module, node
            ):
                continue
            sizes = _sizes(module, length)
            added = _added_to(module, total)
            if sizes and added and 1 not in sizes and all(is_mean(module, each.value) for each in added):
                text = f"{total.id!r} is a sum over batches, divided by a number of examples."
                counted = _added_to(module, length) if isinstance(length, ast.Name) else []
                yield At(counted[0] if counted else node, text, RISK if None in sizes else BUG)


def _divided_again(module: SourceModule) -> Iterator[At]:
    """Report `total += loss.item() / batch_size` of a mean, where nothing multiplies with that size."""
    for node in module.all(ast.AugAssign):
        value = node.value
        divides = (
            isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div) and isinstance(node.op, ast.Add)
        )
        if divides and isinstance(value, ast.BinOp) and (own_name(value.right) or "").endswith("batch_size"):
            if module.loop(node) is not None and is_mean(module, value.left):
                text = f"{ast.unparse(value.left)} is a mean already: divided by the batch size again it is too small."
                yield At(node, text, RISK)


def _sizes(module: SourceModule, length: ast.expr) -> set[int | None]:
    """Return how many examples a batch may have, if a length is a number of examples; None: it can't be seen."""
    loader = _loader_of(module, length)
    if loader is not None:
        return _batch_sizes(module, loader)
    counted = _added_to(module, length) if isinstance(length, ast.Name) else []
    return {None} if counted and all(_is_batch_size(module, each.value) for each in counted) else set()


def _is_rescaled(module: SourceModule, node: ast.AST) -> bool:
    """Tell `total / len(data) * batch_size`."""
    parent = module.parents[node]
    return isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult)


def _added_to(module: SourceModule, name: ast.Name) -> list[ast.AugAssign]:
    nodes = [each.node for each in module.bindings(name)]
    found = [each for each in nodes if isinstance(each, ast.AugAssign) and isinstance(each.op, ast.Add)]
    return [each for each in found if module.loop(each) is not None]


def _is_batch_size(module: SourceModule, value: ast.expr) -> bool:
    """Tell `len(batch)`, `x.size(0)` and `x.shape[0]`."""
    if isinstance(value, ast.Call):
        if module.qualify(value.func) == "len" and value.args:
            return not (isinstance(value.args[0], ast.Attribute) and value.args[0].attr == "dataset")
        return isinstance(value.func, ast.Attribute) and value.func.attr == "size" and _is_first(value.args)
    shape = (
        isinstance(value, ast.Subscript)
        and isinstance(value.value, ast.Attribute)
        and value.value.attr == "shape"
    )
    return shape and isinstance(value, ast.Subscript) and _is_first([value.slice])


def _is_first(index: list[ast.expr]) -> bool:
    return len(index) == 1 and isinstance(index[0], ast.Constant) and index[0].value == 0


def _loader_of(module: SourceModule, length: ast.expr) -> ast.expr | None:
    """Return the loader of `len(loader.dataset)`."""
    if not (isinstance(length, ast.Call) and module.qualify(length.func) == "len" and len(length.args) == 1):
        return None
    data = length.args[0]
    return data.value if isinstance(data, ast.Attribute) and data.attr == "dataset" else None


def _batch_sizes(module: SourceModule, loader: ast.expr) -> set[int | None]:
    """Return how many examples its batches may hold; None where it can't be seen."""
    found: set[int | None] = set()
    for each in value_origins(module, loader):
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
