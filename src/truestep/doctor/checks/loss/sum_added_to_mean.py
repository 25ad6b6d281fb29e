# SPDX-License-Identifier: Apache-2.0
"""A loss summed over the batch beside one averaged over it."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.flow import flows_to
from truestep.doctor.source.losses import losses_of, reduction_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.reductions import is_mean
from truestep.doctor.source.uses import in_same_block


class SumAddedToMean(SourceCheck):
    """A loss that is summed over the batch is added to one that is averaged over it.

    Why: their ratio depends on the batch size, and so does what is trained.

    Bad:
        loss = F.cross_entropy(net(x), y)
        drift = F.kl_div(F.log_softmax(net(x), 1), teacher(x), reduction="sum")  # here
        total = loss + 0.01 * drift
        total.backward()

    Good:
        loss = F.cross_entropy(net(x), y)
        drift = F.kl_div(F.log_softmax(net(x), 1), teacher(x), reduction="batchmean")
        total = loss + 0.01 * drift
        total.backward()

    Fix: one reduction for both; for kl_div it is "batchmean".
    """

    code = "LOSS034"
    words = ("sum", "size_average")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss of reduction "sum" that flows into a sum whose other side is a mean."""
        sums: list[ast.BinOp | ast.AugAssign] = [*module.all(ast.BinOp), *module.all(ast.AugAssign)]
        for call in losses_of(module):
            if reduction_of(module, call) != "sum":
                continue
            reached = flows_to(module, call)
            reached = reached.difference(*(flows_to(module, each) for each in _divided(module, reached)))
            for node in sums:
                here = module.scope(node) is module.scope(call) and isinstance(node.op, ast.Add)
                here = here and not _is_behind_return(module, node)
                if here and _has_mean(module, node, reached):
                    yield At(call, "Summed over the batch, and added to a mean over it.", RISK)
                    break


def _is_behind_return(module: SourceModule, node: ast.AST) -> bool:
    """Tell what can't be reached: a statement of the same block, or of one around it, returned before."""
    for each in [module.statement(node), *module.ancestors(module.statement(node))]:
        if any(isinstance(before, ast.Return | ast.Raise) for before in in_same_block(module, each)[0]):
            return True
        if isinstance(each, ast.FunctionDef):
            return False
    return False


def _divided(module: SourceModule, reached: set[Any]) -> list[ast.BinOp]:
    """Return where a sum is divided, as by the number of examples: what comes of it is a mean."""
    return [each for each in module.all(ast.BinOp) if isinstance(each.op, ast.Div) and each.left in reached]


def _has_mean(module: SourceModule, node: ast.BinOp | ast.AugAssign, reached: set[Any]) -> bool:
    if isinstance(node, ast.BinOp):
        left, right = node.left, node.right
        return (left in reached and is_mean(module, right)) or (right in reached and is_mean(module, left))
    if node.value not in reached or not isinstance(node.target, ast.Name):
        return False
    begun = [
        each.value for each in module.bindings(node.target) if each.how == "assign" and each.value is not None
    ]
    return any(is_mean(module, each) for each in begun)
