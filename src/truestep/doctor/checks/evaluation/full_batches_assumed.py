# SPDX-License-Identifier: Apache-2.0
"""A count of examples as batches times batch size."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import argument, literal


class FullBatchesAssumed(SourceCheck):
    """A total is divided by the number of batches times the batch size.

    Why: the last batch is mostly smaller, so there are fewer examples than that: accuracies come out too low.

    Bad:
        batch_size = 8
        test_loader = DataLoader(data, batch_size=batch_size)
        correct = 0
        with torch.no_grad():
            net.eval()
            for x, y in test_loader:
                correct += (net(x).argmax(1) == y).sum().item()
        accuracy = correct / (len(test_loader) * batch_size)  # here

    Good:
        batch_size = 8
        test_loader = DataLoader(data, batch_size=batch_size)
        correct = 0
        with torch.no_grad():
            net.eval()
            for x, y in test_loader:
                correct += (net(x).argmax(1) == y).sum().item()
        accuracy = correct / len(test_loader.dataset)

    Fix: len(loader.dataset), or count len(x) of each batch.
    """

    code = "EVAL036"
    words = ("batch_size",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a divisor, unless the loader drops its last batch."""
        for node in module.all(ast.BinOp):
            if isinstance(node.op, ast.Div) and (loader := _counted(module, node.right)) is not None:
                if not _drops(module, loader):
                    yield At(node, f"{ast.unparse(node.right)} is more than the number of examples.", RISK)


def _counted(module: SourceModule, divisor: ast.expr) -> ast.expr | None:
    """Return the loader of `len(loader) * batch_size`."""
    if not (isinstance(divisor, ast.BinOp) and isinstance(divisor.op, ast.Mult)):
        return None
    for one, other in ((divisor.left, divisor.right), (divisor.right, divisor.left)):
        if isinstance(one, ast.Call) and module.qualify(one.func) == "len" and len(one.args) == 1:
            loader = one.args[0]
            if module.kind(loader) == "loader" and _is_its_batch_size(module, loader, other):
                return loader
    return None


def _is_its_batch_size(module: SourceModule, loader: ast.expr, size: ast.expr) -> bool:
    """Tell what the loader was given for it, or what is called so."""
    made = [each for each in module.definitions(loader) if isinstance(each, ast.Call)]
    given = [argument(each, 1, "batch_size") for each in made]
    same = any(each is not None and ast.unparse(each) == ast.unparse(size) for each in given)
    return same or (own_name(size) or "").endswith("batch_size")


def _drops(module: SourceModule, loader: ast.expr) -> bool:
    """Tell whether the loader drops its last batch, or may: it is out of sight, or goes through the training set."""
    made = [each for each in module.definitions(loader) if isinstance(each, ast.Call)]
    flags = [argument(each, None, "drop_last") for each in made]
    asked = [each for each in flags if each is not None and literal(module, each) is not False]
    return bool(asked) or any(word.arg is None for each in made for word in each.keywords)
