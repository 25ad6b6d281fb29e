# SPDX-License-Identifier: Apache-2.0
"""An order that is drawn, and the items are taken in the old one."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.questions import mentions_torch

_MAKES = ("list", "range", "numpy.arange", "numpy.array", "torch.arange", "sorted")


class ShuffledOrderUnused(SourceCheck):
    """Indices are shuffled, or an order is drawn, and nothing reads it.

    Why: the batches are cut in the old order in every epoch.

    Bad:
        import random
        indices = list(range(len(x)))
        random.shuffle(indices)  # here
        for start in range(0, len(x), 4):
            opt.zero_grad()
            F.cross_entropy(net(x[start : start + 4]), y[start : start + 4]).backward()
            opt.step()

    Good:
        import random
        indices = list(range(len(x)))
        random.shuffle(indices)
        for start in range(0, len(x), 4):
            batch = indices[start : start + 4]
            opt.zero_grad()
            F.cross_entropy(net(x[batch]), y[batch]).backward()
            opt.step()

    Fix: index by the shuffled order.
    """

    code = "VALUE033"
    words = ("shuffle", "permutation", "randperm")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a name of a new list whose only uses are shuffles and its length, and an order that nothing reads."""
        if not module.of_program(mentions_torch):
            return
        for call in module.calls(*functions("shuffles in place")):
            order = call.args[0] if len(call.args) == 1 else None
            if isinstance(order, ast.Name) and _is_new(module, order) and _only_measured(module, order):
                yield At(call, f"Nothing reads {order.id!r}: its order has no effect.")
        for call in module.calls(*functions("draws an order")):
            node = module.parents[call]
            name = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
            if isinstance(name, ast.Name) and not name.id.startswith("_") and not _is_exported(module, name):
                if not [each for each in module.reads(name.id) if module.scope(each) is module.scope(name)]:
                    if not _is_read_inside(module, name):
                        yield At(node, f"Nothing reads the order {name.id!r} that is drawn here.", RISK)


def _is_exported(module: SourceModule, name: ast.Name) -> bool:
    return isinstance(module.scope(name), ast.Module)


def _is_read_inside(module: SourceModule, name: ast.Name) -> bool:
    """Tell whether a function within reads the name, or it belongs to one around."""
    scope = module.scope(name)
    inner = [each for each in module.reads(name.id) if scope in module.ancestors(each)]
    shared: list[ast.Global | ast.Nonlocal] = [
        *module.inside(scope, ast.Global),
        *module.inside(scope, ast.Nonlocal),
    ]
    declared = [each for each in shared if name.id in each.names]
    return bool(inner or declared)


def _is_new(module: SourceModule, order: ast.Name) -> bool:
    """Tell whether every value of a name is a list that is made here."""
    made = module.definitions(order)
    return bool(made) and all(
        isinstance(each, ast.ListComp) or (isinstance(each, ast.Call) and module.qualify(each.func) in _MAKES)
        for each in made
    )


def _only_measured(module: SourceModule, order: ast.Name) -> bool:
    """Tell whether a name is only shuffled and counted."""
    scope = module.scope(order)
    for each in module.reads(order.id):
        if module.scope(each) is not scope and scope not in module.ancestors(each):
            continue
        call = module.parents[each]
        name = module.qualify(call.func) if isinstance(call, ast.Call) else None
        if name != "len" and name not in functions("shuffles in place"):
            return False
    return not isinstance(scope, ast.Module) or dotted(order) not in module.texts
