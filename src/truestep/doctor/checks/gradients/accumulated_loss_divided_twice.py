# SPDX-License-Identifier: Apache-2.0
"""A loss divided by the number of micro-batches although the library does so."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.libraries import DIVIDES_LOSS, gives_loss
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import argument, literal


class AccumulatedLossDividedTwice(SourceCheck):
    """The loss is divided by the number of micro-batches, and the library divides it again.

    Why: each gradient is too small by that number, as if the learning rate were.

    Bad:
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=4)
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = F.cross_entropy(net(x), y) / 4
                accelerator.backward(loss)  # here
                opt.step()
                opt.zero_grad()

    Good:
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=4)
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = F.cross_entropy(net(x), y)
                accelerator.backward(loss)
                opt.step()
                opt.zero_grad()

    Fix: give the library the loss as it is.
    """

    code = "GRAD056"
    words = tuple(DIVIDES_LOSS.values())

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the backward, or the result of training_step, of a quotient by what the library was told."""
        told = module.of_program(_numbers_told)
        if not told:
            return
        for call in module.method_calls("backward"):
            if isinstance(call.func, ast.Attribute) and _is_accelerator(module, call.func.value):
                loss = argument(call, 0, "loss")
                if loss is not None and _is_divided(module, loss, told["accelerate.Accelerator"]):
                    yield At(call, "accelerator.backward() divides the loss by this number itself.", BUG)
        numbers = {each for name, found in told.items() if name != "accelerate.Accelerator" for each in found}
        for function in module.functions if numbers else ():
            for given in module.returns(function) if gives_loss(module, function) else ():
                if given.value is not None and _is_divided(module, given.value, numbers):
                    yield At(given, "Lightning divides the loss by this number itself.", BUG)


def _numbers_told(files: list[SourceModule]) -> dict[str, set[object]]:
    """Return what the libraries of a program are told to accumulate: texts, and the numbers behind them."""
    found: dict[str, set[object]] = {}
    for module in files:
        for name, keyword in DIVIDES_LOSS.items():
            for call in module.calls(name):
                given = argument(call, None, keyword)
                if given is not None and literal(module, given) != 1:
                    found.setdefault(name, set()).update((ast.unparse(given), literal(module, given)))
    return {name: values - {None} for name, values in found.items()}


def _is_accelerator(module: SourceModule, node: ast.expr) -> bool:
    made = [each for each in module.definitions(node) if isinstance(each, ast.Call)]
    known = "accelerate.Accelerator" in module.of_program(_numbers_told)
    return (
        known and bool(made) and all(module.qualify(each.func) == "accelerate.Accelerator" for each in made)
    )


def _is_divided(module: SourceModule, node: ast.expr, numbers: set[object], depth: int = 0) -> bool:
    """Tell a quotient by one of these numbers, through names."""
    match node:
        case ast.BinOp(op=ast.Div(), right=right):
            known = ast.unparse(right) in numbers or literal(module, right) in numbers - {None}
            return known or ast.unparse(right).endswith(tuple(DIVIDES_LOSS.values()))
        case ast.Name() | ast.Attribute():
            values = module.definitions(node) if depth < MAX_DEPTH else []
            return any(each is not None and _is_divided(module, each, numbers, depth + 1) for each in values)
    return False
