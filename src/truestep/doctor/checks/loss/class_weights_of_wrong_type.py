# SPDX-License-Identifier: Apache-2.0
"""Loss weights that are not float32."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.losses import loss_calls_with_weight
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import argument


class ClassWeightsOfWrongType(SourceCheck):
    """The class weights of a loss are integers, or float64 from NumPy.

    Why: torch raises RuntimeError: the weights must have the type of the logits.

    Bad:
        weights = torch.tensor([1, 2, 3])
        loss = F.cross_entropy(net(x), y, weight=weights)  # here

    Good:
        weights = torch.tensor([1.0, 2.0, 3.0])
        loss = F.cross_entropy(net(x), y, weight=weights)

    Fix: weight.float(), on the device of the logits.
    """

    code = "LOSS005"
    words = ("weight=", "CrossEntropyLoss", "NLLLoss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report weights made by from_numpy or from a list of integers, with no conversion after it."""
        for call, weight in loss_calls_with_weight(module):
            values = [weight] if isinstance(weight, ast.Call) else module.definitions(weight)
            kinds = {_wrong_type(module, each) for each in values}
            if values and None not in kinds:
                yield At(call, f"The class weights are {kinds.pop()}: the loss takes the type of the logits.")


def _wrong_type(module: SourceModule, value: ast.expr | None) -> str | None:
    if not isinstance(value, ast.Call):
        return None
    name = module.qualify(value.func)
    if name == "torch.from_numpy":
        source = value.args[0] if value.args else None
        return (
            None if source is not None and "float32" in ast.unparse(source) else "NumPy's float64 or integers"
        )
    dtype = argument(value, None, "dtype")
    numbers = (
        [node.value for node in walk(value.args[0]) if isinstance(node, ast.Constant)] if value.args else []
    )
    if name == "torch.tensor" and dtype is None and numbers and all(type(each) is int for each in numbers):
        literal = not any(isinstance(node, ast.Name | ast.Call | ast.Div) for node in walk(value.args[0]))
        return "integers" if literal else None
    return None
