# SPDX-License-Identifier: Apache-2.0
"""backward() of a number made anew."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import receiver_of
from truestep.doctor.source.values import argument, literal, seen_through


class LossWithoutGraph(SourceCheck):
    """backward() is called on a tensor that was made anew from the loss's number.

    Why: torch.tensor(loss), loss.item() and loss.data have no graph: no weight gets a gradient.

    Bad:
        loss = torch.tensor(F.cross_entropy(net(x), y).item(), requires_grad=True)
        loss.backward()  # here

    Good:
        loss = F.cross_entropy(net(x), y)
        loss.backward()

    Fix: call backward() on the loss itself.

    Evidence: the plain form of row 47 of docs/mistakes.md.
    """

    code = "GRAD022"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it where everything the name can be is such a copy."""
        for call in module.method_calls("backward"):
            loss = receiver_of(call)
            values = module.definitions(loss) if loss is not None else []
            if values and all(self._is_copy(module, each) for each in values):
                yield At(call, "The loss was made anew from a number: it has no graph behind it.")

    def _is_copy(self, module: SourceModule, value: ast.expr | None) -> bool:
        if not isinstance(value, ast.Call):
            return False
        name = module.qualify(value.func)
        copies = name in ("torch.tensor", "torch.Tensor", "torch.FloatTensor", "torch.from_numpy")
        detached = (
            isinstance(value.func, ast.Attribute)
            and value.func.attr in ("detach", "requires_grad_")
            and "detach" in ast.unparse(value)
        )
        number = seen_through(module, value.args[0]) if copies and value.args else None
        written = [ast.unparse(each) for each in (value, *_behind(module, number))]
        whole = any("loss" in each or "cross_entropy" in each for each in written)
        return whole and (
            (copies and literal(module, argument(value, None, "requires_grad")) is not False) or detached
        )


def _behind(module: SourceModule, number: ast.expr | None) -> list[ast.expr]:
    """Return what a number comes from: `cross_entropy(...)` of `between.item()`, and that itself."""
    method = number.func if isinstance(number, ast.Call) else None
    owner = seen_through(module, method.value) if isinstance(method, ast.Attribute) else None
    return [each for each in (number, owner) if each is not None]
