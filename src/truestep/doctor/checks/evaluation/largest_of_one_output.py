# SPDX-License-Identifier: Apache-2.0
"""The largest of one output."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.outputs import named_already, num_outputs
from truestep.doctor.source.values import argument, constant


class LargestOfOneOutput(SourceCheck):
    """The largest output, and its index, are taken of a model with one output.

    Why: it is always 0: the accuracy that follows says how many labels are 0.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        outputs = net(x)
        preds = outputs.max(1)[1]  # here

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        outputs = net(x)
        preds = (outputs[:, 0] > 0).long()

    Fix: one logit is compared with 0, a probability with 0.5; two classes by argmax need two outputs.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/052/main.py:78;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/066/main.py:75; bed H: 0 true, 1 false.
    """

    code = "EVAL031"
    words = ("max",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report max along axis 1 of what a model gives whose last layer has one output."""
        for call in module.all(ast.Call):
            given = _given(module, call)
            if given is None or named_already(module, given) or not _takes_index(module, call):
                continue
            if num_outputs(module, given) == 1:
                yield At(call, "The model has one output: the index of the largest is always 0.")


def _takes_index(module: SourceModule, given: ast.expr) -> bool:
    """Tell whether the second of the two that a maximum gives is read: `[1]`, `.indices`, `_, pred = ...`."""
    above = module.parents[given]
    match above:
        case ast.Subscript(slice=index):
            return constant(index) in (1, -1)
        case ast.Attribute(attr=name):
            return name == "indices"
        case ast.Assign(targets=[ast.Tuple(elts=[first, second])]):
            return dotted(first) == "_" or bool(module.reads(dotted(second) or ""))
        case ast.Assign(targets=[ast.Name(id=name)]):
            scope = module.scope(given)
            return any(
                _takes_index(module, each) for each in module.reads(name) if module.scope(each) is scope
            )
    return False


def _given(module: SourceModule, call: ast.Call) -> ast.expr | None:
    """Return x of `torch.max(x, 1)` and `x.max(1)`."""
    if module.qualify(call.func) == "torch.max" and call.args:
        given, dim = call.args[0], argument(call, 1, "dim")
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "max":
        given, dim = call.func.value, argument(call, 0, "dim")
    else:
        return None
    return given if constant(dim) in (1, -1) else None
