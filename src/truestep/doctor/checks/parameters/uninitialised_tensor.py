# SPDX-License-Identifier: Apache-2.0
"""`torch.FloatTensor(n)`: n numbers, not the number n."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.value_origins import constant

TYPES = ("Float", "Double", "Half", "Long", "Int", "Byte", "Bool", "Short", "Char", "BFloat16")
_MOVED = operations(numbers="kept itself home moved rounded whole") - operations(graph="left")


class UninitialisedTensor(SourceCheck):
    """torch.FloatTensor(2) makes two uninitialised numbers, not the number 2.

    Why: the memory holds whatever was there; the result differs from run to run.

    Bad:
        a = torch.FloatTensor(2)  # here

    Good:
        a = torch.tensor(2.0)

    Fix: torch.tensor(2.0) for a value, torch.zeros(2) or torch.empty(2) for a shape.

    Evidence: Project-MONAI/tutorials b3c6c998
    competitions/kaggle/RANZCR/4th_place_solution/models/seg_model.py:228; corpus, 186 repositories, beds K, L,
    N, Q: 5 true, 8 false.
    """

    code = "PARAM011"
    words = ("Tensor(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a legacy constructor with one literal number that is used as it comes."""
        names = [
            "torch.Tensor",
            *(f"torch.{kind}Tensor" for kind in TYPES),
            *(f"torch.cuda.{kind}Tensor" for kind in TYPES),
        ]
        for call in module.calls(*names):
            value = constant(call.args[0]) if len(call.args) == 1 else None
            if not isinstance(value, int) or isinstance(value, bool):  # a float is a TypeError
                continue
            if not (
                _is_filled_in_same_expression(module, call)
                or _is_in_displayed_container(module, call)
                or _is_filled_item_by_item(module, call)
            ):
                yield At(
                    call,
                    f"This makes {value} uninitialised numbers, not the value {value}.",
                    QUESTION,
                )


def _is_filled_in_same_expression(module: SourceModule, call: ast.Call) -> bool:
    """Tell `torch.FloatTensor(1).zero_()`, be it moved or converted before."""
    above = module.parents[call]
    while isinstance(above, ast.Attribute) and above.attr in (*_MOVED, "data"):
        above = module.parents[above] if above.attr == "data" else module.parents[module.parents[above]]
    return isinstance(above, ast.Attribute) and above.attr.endswith("_")


def _is_in_displayed_container(module: SourceModule, call: ast.Call) -> bool:
    """Tell a dictionary or a list that stands for itself: what a page shows as the result."""
    statement = module.statement(call)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, (ast.Dict, ast.List, ast.Tuple))


def _is_filled_item_by_item(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether the numbers are given values one by one: `x = torch.LongTensor(2); x[0] = 3`."""
    statement = module.statement(call)
    name = dotted_name(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    uses = module.reads(name) if name is not None else []
    outer = [module.parents[each] for each in uses]
    if any(isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Store) for each in outer):
        return True
    return name is not None and any(
        _is_fill_call(module, each, name.rpartition(".")[2]) for each in module.all(ast.Call)
    )


def _is_fill_call(module: SourceModule, call: ast.Call, name: str) -> bool:
    """Tell `self.bias[i].data.fill_(0)` and `nn.init.normal_(self.bias)`."""
    given: list[ast.AST] = []
    if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
        given.append(call.func.value)
    if (module.qualify(call.func) or "").startswith("torch.nn.init."):
        given += call.args
    return any(own_name(part) == name for each in given for part in walk(each))
