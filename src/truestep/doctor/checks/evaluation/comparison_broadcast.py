# SPDX-License-Identifier: Apache-2.0
"""A row of predictions beside a column of labels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.shapes import COLUMN, ROW, row_or_column
from truestep.doctor.source.values import value_origins
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin

# what turns outputs into predictions; labels beside labels are compared each with each by right
DECIDES = operations(numbers="ordered chosen index stepped")


class ComparisonBroadcast(SourceCheck, Watcher):
    """Predictions of shape (batch,) are compared with labels of shape (batch, 1).

    Why: the comparison is broadcast to (batch, batch): every prediction meets every label, and the
    accuracy can exceed 1.

    Bad:
        labels = y.unsqueeze(1)
        preds = net(x).argmax(1)
        correct = (preds == labels).sum()  # here

    Good:
        labels = y.unsqueeze(1)
        preds = net(x).argmax(1)
        correct = (preds == labels.squeeze(1)).sum()

    Fix: give both the same shape.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/052/main.py:78;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/066/main.py:75; bed P: 0 true, 2 false.
    """

    code = "EVAL030"
    words = ("unsqueeze", "view(-1, 1)", "reshape(-1, 1)", "[:, None]")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `a == b` and `a.eq(b)` where one was reduced along axis 1 and the other made a column."""
        for node, left, right in _comparisons(module):
            if _is_counted(module, left) or _is_counted(module, right):
                continue  # `labels[:, None] == torch.arange(10)`: one column for each class
            if {row_or_column(module, left), row_or_column(module, right)} == {ROW, COLUMN}:
                yield At(
                    node, "(batch,) is compared with (batch, 1): each prediction with every label.", RISK
                )

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> Observations:
        """Report a comparison of predictions that made a square of a row and a column."""
        if origin.operation not in ("eq", "ne") or len(given) != 2:
            return
        row, column = sorted((tuple(each.shape) for each in given), key=len)
        if len(row) != 1 or row[0] < 2 or column != (row[0], 1):
            return
        if any(each.operation in DECIDES for made in origin.before for each in made.ancestors()):
            text = f"{row} is compared with {column}: each prediction with every label."
            yield Observation(origin.place, text, BUG, {"compared": [row, column]})


def _is_counted(module: SourceModule, node: ast.expr) -> bool:
    """Tell `torch.arange(n)`: it has a number for each class, not for each example."""
    made = [each for each in value_origins(module, node) if isinstance(each, ast.Call)]
    counted = operations(shape="counted")
    return any((module.qualify(each.func) or "").removeprefix("torch.") in counted for each in made)


def _comparisons(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    for node in module.all(ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            yield node, node.left, node.comparators[0]
    for call in [*module.method_calls("eq", "ne"), *module.calls("torch.eq", "torch.ne")]:
        assert isinstance(call.func, ast.Attribute)
        if len(call.args) == 2:
            yield call, call.args[0], call.args[1]
        elif len(call.args) == 1:
            yield call, call.func.value, call.args[0]
