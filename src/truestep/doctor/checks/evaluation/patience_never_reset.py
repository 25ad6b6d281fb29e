# SPDX-License-Identifier: Apache-2.0
"""A count of epochs without improvement that no improvement sets back."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.flow import place_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.uses import arms
from truestep.doctor.source.values import constant

_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE


class PatienceNeverReset(SourceCheck):
    """The epochs without an improvement are counted, and an improvement does not set the count back to 0.

    Why: patience is meant for epochs in a row. Now the training stops after as many bad epochs in all, however well it goes
    between them.

    Bad:
        best, waited = float("inf"), 0
        for epoch in range(100):
            loss = float(F.cross_entropy(net(x), y))
            if loss < best:  # here
                best = loss
            else:
                waited += 1
                if waited >= 5:
                    break

    Good:
        best, waited = float("inf"), 0
        for epoch in range(100):
            loss = float(F.cross_entropy(net(x), y))
            if loss < best:
                best, waited = loss, 0
            else:
                waited += 1
                if waited >= 5:
                    break

    Fix: set the count to 0 where the best value is set.
    """

    code = "EVAL040"
    words = ("+= 1",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a test for something better whose one arm keeps it, and whose other arm counts towards a limit."""
        for node in module.all(ast.If) if "torch" in module.text else ():
            test, better, worse = arms(node)
            compared = [each for each in walk(test) if isinstance(each, ast.Compare)]
            if not any(isinstance(each.ops[0], _ORDERS) for each in compared):
                continue
            for keeping, counting in ((better, worse), (worse, better)):
                counter = next((each for each in counting if _counts_one(each)), None)
                kept = {name for each in keeping for name in _stored(each)}
                asked = {
                    name for each in compared for part in walk(each) if (name := place_of(part)) is not None
                }
                if counter is None or not kept & asked:
                    continue
                name = place_of(counter.target)  # type: ignore[attr-defined]
                if name is not None and name not in kept | asked and _is_limited(module, node, name):
                    if not _is_set_back(module, node, name):
                        yield At(node, f"Nothing sets {name!r} back to 0 when the value is better.", RISK)
                        break


def _counts_one(node: ast.stmt) -> bool:
    return isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and constant(node.value) == 1


def _stored(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    parts = [part for each in targets for part in getattr(each, "elts", [each])]
    return {name for each in parts if (name := place_of(each)) is not None}


def _is_limited(module: SourceModule, node: ast.AST, name: str) -> bool:
    """Tell whether the count is compared with something, that training ends by it."""
    sides = [part for each in module.all(ast.Compare) for part in (each.left, *each.comparators)]
    return any(place_of(each) == name and _same_owner(module, each, node) for each in sides)


def _is_set_back(module: SourceModule, node: ast.AST, name: str) -> bool:
    """Tell whether the count is given another value than at its beginning, or handed on to who may do so."""
    for each in module.all(ast.Assign):
        if name in _stored(each) and _same_owner(module, each, node):
            function = module.scope(each)
            loop = module.loop(node)
            if "." in name and getattr(function, "name", "") != "__init__":
                return True
            if "." not in name and (loop is None or loop in module.ancestors(each)):
                return True
    attribute = name.rpartition(".")[2]
    handed = [
        each for each in module.reads(name.partition("[")[0]) if isinstance(module.parents[each], ast.Call)
    ]
    return ("." in name and attribute in module.index.written) or ("[" in name and bool(handed))


def _same_owner(module: SourceModule, first: ast.AST, second: ast.AST) -> bool:
    """Tell whether two places share a function, or a class."""
    same = module.scope(first) is module.scope(second)
    owner = module.enclosing(first, ast.ClassDef)
    return same or (owner is not None and owner is module.enclosing(second, ast.ClassDef))
