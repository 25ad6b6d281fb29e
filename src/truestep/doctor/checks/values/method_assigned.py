# SPDX-License-Identifier: Apache-2.0
"""`p.data.copy = ...`, `p.requires_grad_ = False`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.cached_questions import mentions_torch
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.redundant_unfreezing import is_redundant_requires_grad

_WRITES = ("copy", "fill", "zero", "add", "sub", "mul", "div", "lerp", "normal", "uniform", "clamp", "set")
_OF_TENSORS = (
    frozenset(f"{each}_" for each in _WRITES) | operations(numbers="itself", graph="kept") | {"copy"}
)
_TENSORS = ("data", "grad", "weight", "bias")  # attributes that are tensors


class MethodAssigned(SourceCheck):
    """A value is assigned to the name of a tensor's method, where a call is meant.

    Why: the tensor stays as it was, and Python does not complain: nothing is copied, frozen or cleared.

    Bad:
        target = copy.deepcopy(net)
        for slow, fast in zip(target.parameters(), net.parameters()):
            slow.data.copy_ = 0.9 * slow.data + 0.1 * fast.data  # here

    Good:
        target = copy.deepcopy(net)
        for slow, fast in zip(target.parameters(), net.parameters()):
            slow.data.copy_(0.9 * slow.data + 0.1 * fast.data)

    Fix: call the method with the value.

    Evidence: 186 repositories, beds K, S: 3 true, 1 false.
    """

    code = "VALUE031"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such an assignment to a tensor, of something that is no function."""
        if not module.program.answer(mentions_torch):
            return
        for node in module.all(ast.Assign):
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and _is_tensor_method(target)
                    and _is_number_or_computed(node.value)
                ):
                    text = f"{ast.unparse(target)} is a method: to assign to it changes no tensor."
                    yield At(node, text, ADVICE if is_redundant_requires_grad(module, node, target) else BUG)


def _is_tensor_method(target: ast.Attribute) -> bool:
    if target.attr == "requires_grad_":
        return True
    of_tensor = isinstance(target.value, ast.Attribute) and target.value.attr in _TENSORS
    return of_tensor and target.attr in _OF_TENSORS


def _is_number_or_computed(value: ast.expr) -> bool:
    """Tell a number or a computed value from a function that is put in the method's place."""
    return isinstance(value, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call, ast.Subscript, ast.List))
