# SPDX-License-Identifier: Apache-2.0
"""In-place writes through .data."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.tensors import asks_for_gradients
from truestep.doctor.source.values import constant, last_operations

# the backward of these computes with what they gave
_KEEP_RESULT = operations(backward="result")


class ValueChangedBehindAutograd(SourceCheck):
    """What a module or an operation gave is changed in place through .data.

    Why: autograd does not see it: gradients belong to values that are gone, or are computed from the new ones.

    Bad:
        out = net(x)
        out.data.zero_()  # here

    Good:
        out = net(x).detach().zero_()

    Fix: .detach() (which raises where this is wrong), or out-of-place operations.
    """

    code = "GRAD017"
    words = (".data",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it on names that hold the output of a module, or a result that its backward needs."""
        for node, name in _writes(module):
            values = module.definitions(name)
            if values and all(_is_output(module, each) for each in values):
                yield At(node, "The output is changed behind autograd's back.", RISK)
            elif values and all(_is_needed(module, each) for each in values):
                text = f"The backward of what made {name.id!r} computes with its value, which is now another."
                yield At(node, text, RISK)


def _writes(module: SourceModule) -> Iterator[tuple[ast.AST, ast.Name]]:
    """Yield (node, y) for `y.data.zero_()`, `y.data[...] = v` and `y.data += v`."""
    for call in module.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
            if not call.func.attr.endswith("__") and (name := _behind_data(call.func.value)) is not None:
                yield call, name
    assignments: list[ast.Assign | ast.AugAssign] = [*module.all(ast.Assign), *module.all(ast.AugAssign)]
    for node in assignments:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Subscript) or isinstance(node, ast.AugAssign):
                if (name := _behind_data(target)) is not None:
                    yield node, name


def _behind_data(node: ast.expr) -> ast.Name | None:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.value, ast.Name):
        return node.value
    return None


def _is_output(module: SourceModule, value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and module.kind(value.func) == "module"


def _is_needed(module: SourceModule, value: ast.expr | None) -> bool:
    """Tell `x.exp()` of an x with gradients; the power with a constant exponent uses its input."""
    if not isinstance(value, ast.Call) or not asks_for_gradients(module, value):
        return False
    made = last_operations(module, value)
    squared = made == {"pow"} and constant(value.args[-1] if value.args else None) is not None
    return bool(made) and made <= _KEEP_RESULT and not squared
