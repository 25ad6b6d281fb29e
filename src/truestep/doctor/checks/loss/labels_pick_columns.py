# SPDX-License-Identifier: Apache-2.0
"""`probabilities[:, labels]`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument


class LabelsPickColumns(SourceCheck):
    """The labels of a batch index a dimension for all rows at once.

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
    words = ("[:, ",)

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
                known = targets.get(module.scope(node), set())
                if isinstance(labels, ast.Name) and labels.id in known and isinstance(node.ctx, ast.Load):
                    yield At(node, f"[:, {labels.id}] takes every row at every label, not each at its own.")
