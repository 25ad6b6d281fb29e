# SPDX-License-Identifier: Apache-2.0
"""A best value that is compared with one number and set to another."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import SAME_NUMBERS
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.uses import arms

_BEST = re.compile(r"(^|_)(best|lowest|highest|min|max|minimum|maximum)(_|$)", re.IGNORECASE)
_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE
_DEEP = 2  # from a number back to what it is made of
_SAME = SAME_NUMBERS | {"copy"}


class BestSetToAnother(SourceCheck):
    """One value is compared with the best so far, and the best is then set to another one.

    Why: what is kept is neither the best of the one nor of the other: the model that is saved is chosen by chance.

    Bad:
        best = float("inf")
        for epoch in range(3):
            train_loss = float(F.cross_entropy(net(x), y))
            valid_loss = float(F.cross_entropy(net(x + 1), y))
            if train_loss < best:  # here
                best = valid_loss
                torch.save(net.state_dict(), "best.pt")

    Good:
        best = float("inf")
        for epoch in range(3):
            train_loss = float(F.cross_entropy(net(x), y))
            valid_loss = float(F.cross_entropy(net(x + 1), y))
            if valid_loss < best:
                best = valid_loss
                torch.save(net.state_dict(), "best.pt")
            print(train_loss)

    Fix: compare what is kept.
    """

    code = "VALUE020"
    words = ("best", "lowest", "highest", "min_", "max_")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `if a < best: best = b` where a and b are two names, neither made of the other."""
        for node in module.all(ast.If) if "torch" in module.text else ():
            test, then, _ = arms(node)
            orders = [each for each in walk(test) if isinstance(each, ast.Compare)]
            for statement in then:
                if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                    continue
                best, kept = _place(statement.targets[0]), _place(_peeled(statement.value))
                if best is None or kept is None or not _BEST.search(best.rsplit(".", 1)[-1]):
                    continue
                others = [other for each in orders if (other := _compared_with(each, best)) is not None]
                if len(orders) == len(others) == 1 and _is_another(module, others[0], statement.value):
                    text = f"{ast.unparse(others[0])!r} is compared with {best!r}, which is then set to {kept!r}."
                    yield At(node.test, text)


def _place(node: ast.expr) -> str | None:
    """Return the text of a name, an attribute or an item."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else None


def _peeled(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
            node = node.func.value
        elif dotted(node.func) in ("float", "int", "round", "copy.deepcopy") and node.args:
            node = node.args[0]
        else:
            break
    return node


def _compared_with(node: ast.Compare, best: str) -> ast.expr | None:
    """Return a of `a < best`, and of `a < best - delta`."""
    if len(node.ops) != 1 or not isinstance(node.ops[0], _ORDERS):
        return None
    sides = (node.left, node.comparators[0])
    for side, other in (sides, sides[::-1]):
        if any(_place(each) == best for each in walk(side) if isinstance(each, ast.expr)):
            return _peeled(other)
    return None


def _is_another(module: SourceModule, compared: ast.expr, value: ast.expr) -> bool:
    """Tell two values neither of which is made of the other, or lies in it."""
    kept = _peeled(value)
    texts = ast.unparse(compared), ast.unparse(kept)
    if _place(compared) is None or texts[0].startswith(f"{texts[1]}.") or texts[0].startswith(f"{texts[1]}["):
        return False
    return texts[0] not in _behind(module, kept, _DEEP) and texts[1] not in _behind(module, compared, _DEEP)


def _behind(module: SourceModule, node: ast.expr, deep: int) -> set[str]:
    """Return the texts of what a value is made of."""
    parts = [each for each in walk(node) if isinstance(each, ast.expr) and _place(each) is not None]
    found = {ast.unparse(each) for each in parts}
    values = [value for each in parts if deep for value in module.definitions(each) if value is not None]
    return found.union(*(_behind(module, value, deep - 1) for value in values))
