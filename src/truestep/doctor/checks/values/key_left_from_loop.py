# SPDX-License-Identifier: Apache-2.0
"""`losses[k]` after the loop over k."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.uses import names_stored

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class KeyLeftFromLoop(SourceCheck):
    """A table is read with the variable of a loop over it that has ended.

    Why: it is the last key: one entry stands for what was meant of all.

    Bad:
        losses = {"box": F.l1_loss(net(x), x), "class": F.cross_entropy(net(x), y)}
        total = 0
        for k in losses:
            total = total + losses[k]
        print(losses[k].item())  # here

    Good:
        losses = {"box": F.l1_loss(net(x), x), "class": F.cross_entropy(net(x), y)}
        total = 0
        for k in losses:
            total = total + losses[k]
        print(total.item())

    Fix: use what the loop computed.
    """

    code = "VALUE003"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a read where nothing but loops over this table gives the key its value."""
        if "torch" not in module.text:
            return
        for node in module.all(ast.Subscript):
            key, table = node.slice, dotted(node.value)
            if not (isinstance(key, ast.Name) and isinstance(node.ctx, ast.Load) and table):
                continue
            bindings = module.bindings(key)
            if not bindings or any(each.how != "for" or each.value is None for each in bindings):
                continue
            if table in {_table(each.value) for each in bindings} and not _within(module, node, key.id):
                yield At(node, f"The loop over {table!r} has ended: {key.id!r} is its last key.", RISK)


def _table(value: ast.expr | None) -> str | None:
    """Return t for `t`, `t.keys()` and `t.items()`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.args:
        return dotted(value.func.value)
    return dotted(value) if value is not None else None


def _within(module: SourceModule, node: ast.AST, name: str) -> bool:
    """Tell whether a loop or a comprehension around a node gives the name its value."""
    for above in module.ancestors(node):
        if isinstance(above, ast.For | ast.AsyncFor) and name in names_stored(above.target):
            return True
        if isinstance(above, _COMPREHENSIONS) and any(
            name in names_stored(each.target) for each in above.generators
        ):
            return True
    return False
