# SPDX-License-Identifier: Apache-2.0
"""A softmax over an axis that is taken apart afterwards."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, seen_through, value_origins

_SHARES = ("softmax", "log_softmax")


class SoftmaxBeforeSplit(SourceCheck):
    """A softmax runs over the last axis, which holds several groups of classes: a view takes them apart afterwards.

    Why: all groups share one sum of 1: with nine boxes of two classes a probability is about 1/18, and no group's sum is 1.

    Bad:
        scores = torch.randn(4, 18, 8, 8).permute(0, 2, 3, 1).contiguous()
        shares = F.softmax(scores, dim=3)  # here
        foreground = shares.view(4, 8, 8, 9, 2)[..., 1]

    Good:
        scores = torch.randn(4, 18, 8, 8).permute(0, 2, 3, 1).contiguous()
        shares = F.softmax(scores.view(4, 8, 8, 9, 2), dim=4)
        foreground = shares[..., 1]

    Fix: view first, then softmax over the classes of one group.
    """

    code = "LOSS057"
    words = ("softmax",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a softmax along the last axis whose result is viewed with one axis more, the softmax's being split."""
        told: set[ast.AST] = set()
        for view in module.method_calls("view", "reshape"):
            assert isinstance(view.func, ast.Attribute)
            made = seen_through(module, view.func.value)
            if not isinstance(made, ast.Call) or made in told:
                continue
            rank = _rank_of_softmax(module, made)
            sizes = (
                view.args[0].elts
                if len(view.args) == 1 and isinstance(view.args[0], ast.Tuple)
                else view.args
            )
            if rank is not None and len(sizes) == rank + 1 and _is_class_picked(module, view):
                told.add(made)
                yield At(
                    made,
                    "This softmax runs over an axis that is split afterwards: all groups share one sum.",
                    RISK,
                )


def _is_class_picked(module: SourceModule, view: ast.Call) -> bool:
    """Tell `shares.view(...)[..., 1]`, there or under a name: the last axis is that of the classes."""
    statement = module.statement(view)
    places: list[ast.AST] = [view]
    if (
        isinstance(statement, ast.Assign)
        and statement.value is view
        and isinstance(statement.targets[0], ast.Name)
    ):
        places += module.reads(statement.targets[0].id)
    for each in places:
        item = module.parents[each]
        if isinstance(item, ast.Subscript) and item.value is each and isinstance(item.slice, ast.Tuple):
            if isinstance(constant(item.slice.elts[-1]), int):
                return True
    return False


def _rank_of_softmax(module: SourceModule, call: ast.Call) -> int | None:
    """Return the number of axes of what a softmax over the last of them is taken of, where that can be seen."""
    name = (module.qualify(call.func) or "").rsplit(".", 1)[-1]
    function = name in _SHARES and (module.qualify(call.func) or "").startswith("torch.")
    method = isinstance(call.func, ast.Attribute) and call.func.attr in _SHARES and not function
    if not function and not method:
        return None
    dim = constant(argument(call, 1 if function else 0, "dim"))
    given = argument(call, 0, "input") if function else call.func.value  # type: ignore[attr-defined]
    if not isinstance(dim, int) or given is None:
        return None
    ranks = {_rank(module, each) for each in [given, *value_origins(module, given)] if each is not None} - {
        None
    }
    ranks |= {_rank(module, each) for each in [seen_through(module, given)] if each is not None} - {None}
    rank = ranks.pop() if len(ranks) == 1 else None
    return rank if rank is not None and dim in (-1, rank - 1) else None


def _rank(module: SourceModule, node: ast.expr) -> int | None:
    """Return how many axes a value has by the permutation or view that made it."""
    for _ in range(4):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr in ("permute", "view", "reshape") and len(node.args) > 1:
            return len(node.args)
        if node.func.attr not in ("contiguous", "float", "clone", "detach", "to", "cpu", "cuda"):
            return None
        node = seen_through(module, node.func.value) or node
    return None
