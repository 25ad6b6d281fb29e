# SPDX-License-Identifier: Apache-2.0
"""A running total that goes on from epoch to epoch."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.libraries import EPOCHS_OF
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import method_of
from truestep.doctor.source.values import value_origins


class TotalNeverReset(SourceCheck):
    """A total is set to 0 before the epochs, summed over the batches, and divided by the length of one epoch.

    Why: from the second epoch on it also holds the epochs before: the loss seems to grow, the accuracy lags.

    Bad:
        total = 0.0
        for epoch in range(3):
            for x, y in loader:
                total += F.cross_entropy(net(x), y).item()
            print(total / len(loader))  # here

    Good:
        for epoch in range(3):
            total = 0.0
            for x, y in loader:
                total += F.cross_entropy(net(x), y).item()
            print(total / len(loader))

    Fix: set it to 0 at the start of each epoch.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/039/main.py:14;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/039/original_code_snippet.py:7.
    """

    code = "EVAL013"
    words = ("len(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `total / len(...)` in a loop whose inner loop adds to it, and that never sets it."""
        for node in module.all(ast.BinOp):
            total, length = node.left, node.right
            measured = isinstance(length, ast.Call) and module.qualify(length.func) == "len"
            if isinstance(node.op, ast.Div) and isinstance(total, ast.Name) and measured:
                outer = module.loop(node)
                if isinstance(outer, ast.For) and self._goes_on(module, total, outer):
                    yield At(node, f"{total.id!r} also holds the epochs before: nothing sets it back.", RISK)

    def _goes_on(self, module: SourceModule, total: ast.Name, outer: ast.For) -> bool:
        inside = [each for each in module.names.bindings(total) if outer in module.ancestors(each.node)]
        added = [each for each in inside if each.how == "augmented" and module.loop(each.node) is not outer]
        return bool(added) and len(inside) == len(added) and self._counts(module, outer.iter)

    def _counts(self, module: SourceModule, source: ast.expr) -> bool:
        """Tell `range(n)` and `run.epochs(n)`, also within `tqdm(...)` and under a name."""
        for each in value_origins(module, source):
            inner = each
            while isinstance(inner, ast.Call) and not _counts_epochs(module, inner) and inner.args:
                inner = inner.args[0]
            if not (isinstance(inner, ast.Call) and _counts_epochs(module, inner)):
                return False
        return True


def _counts_epochs(module: SourceModule, call: ast.Call) -> bool:
    if module.qualify(call.func) == "range":
        return True
    method = method_of(call)
    return method in EPOCHS_OF and module.classes.maker_of(call) == EPOCHS_OF[method]
