# SPDX-License-Identifier: Apache-2.0
"""`probabilities[:, labels]`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import names_in
from truestep.doctor.source.shapes import ROW, row_or_column
from truestep.doctor.source.values import argument, behind, sources


class LabelsPickColumns(SourceCheck):
    """The labels of a batch, or each example's best class, index a dimension for all rows at once.

    Why: `p[:, y]` takes every row's value at every label: N x N numbers, not one for each example.

    Bad:
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        confidence = logits.softmax(1)[:, y].sum()  # here

    Good:
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        confidence = logits.softmax(1)[torch.arange(len(y)), y].sum()

    Fix: `p[torch.arange(len(y)), y]`, or `p.gather(1, y[:, None])`.
    """

    code = "LOSS032"
    words = ("[:, ", "[:,")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `x[:, y]` where y is the target of a loss over classes in the same function."""
        targets: dict[ast.AST, set[str]] = {}
        for call in losses_of(module, "cross_entropy", "nll_loss"):
            target = argument(call, 1, "target")
            if isinstance(target, ast.Name):
                targets.setdefault(module.scope(call), set()).add(target.id)
        for node in module.all(ast.Subscript):
            index = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
            if len(index) == 2 and isinstance(index[0], ast.Slice) and ast.unparse(index[0]) == ":":
                labels = index[1]
                if isinstance(labels, ast.Name) and _is_best_of(module, labels, node.value):
                    yield At(
                        node,
                        f"[:, {labels.id}] takes every row at the best of all rows, not each at its own.",
                    )
                    continue
                known = targets.get(module.scope(node), set())
                if isinstance(labels, ast.Name) and labels.id in known and isinstance(node.ctx, ast.Load):
                    yield At(node, f"[:, {labels.id}] takes every row at every label, not each at its own.")


def _is_best_of(module: SourceModule, index: ast.Name, tensor: ast.expr) -> bool:
    """Tell the index of each row's greatest value, where that was sought in what is indexed, or in what it gave."""
    if not isinstance(tensor, ast.Name) or row_or_column(module, index) != ROW:
        return False
    values = [value for value, _ in sources(module, index)]
    if len(values) != 1 or values[0] is None:
        return False
    return any(tensor.id in names_in(each) for each in behind(module, values[0]))
