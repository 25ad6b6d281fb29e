# SPDX-License-Identifier: Apache-2.0
"""A row of predictions beside a column of labels."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.shapes import COLUMN, ROW, row_or_column


class ComparisonBroadcast(SourceCheck):
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
    """

    code = "EVAL030"
    words = ("unsqueeze", "view(-1, 1)", "reshape(-1, 1)", "[:, None]")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `a == b` and `a.eq(b)` where one was reduced along axis 1 and the other made a column."""
        for node, left, right in _comparisons(module):
            if {row_or_column(module, left), row_or_column(module, right)} == {ROW, COLUMN}:
                yield At(node, "(batch,) is compared with (batch, 1): each prediction with every label.")


def _comparisons(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    for node in module.all(ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            yield node, node.left, node.comparators[0]
    for call in [*module.method_calls("eq", "ne"), *module.calls("torch.eq", "torch.ne")]:
        assert isinstance(call.func, ast.Attribute)
        if len(call.args) == 2:
            yield call, call.args[0], call.args[1]
        elif len(call.args) == 1:
            yield call, call.func.value, call.args[0]
