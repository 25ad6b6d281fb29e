# SPDX-License-Identifier: Apache-2.0
"""A loss divided by the number of micro-batches although the library does so."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.libraries import DIVIDES_LOSS, gives_loss
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.protocol import Protocol
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import argument, literal, value_origins

_ACCUMULATED = re.compile(r"accum|micro_?batch", re.IGNORECASE)


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
    words = (*DIVIDES_LOSS.values(), ".learner(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the backward, or the result of training_step, of a quotient by what the library was told."""
        yield from _of_learners(module)
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


def _of_learners(module: SourceModule) -> Iterator[At]:
    """Yield what a loss of a learner of Truestep's returns, if divided by a number of parts: the engine averages."""
    protocol = Protocol(module)
    calls = [*module.method_calls("update"), *module.calls("truestep.update")]
    losses = {protocol.closure(call) for call in calls if protocol.loss_given(call) is not None}
    for function in (each for each in losses if each is not None):
        for given in module.resolver.results(function) if module.home(function) is module else ():
            if _is_divided(module, given, _parts_of_learners(module)) or _is_by_name(module, given):
                yield At(given, "net.update() averages over the whole batch, however it is split.", BUG)


def _parts_of_learners(module: SourceModule) -> set[object]:
    """Return into how many parts the batches are split, as far as both numbers are in sight."""
    whole = {literal(module, argument(each, None, "batch_size")) for each in module.method_calls("data")}
    parts = {literal(module, argument(each, None, "micro_batch")) for each in module.method_calls("learner")}
    pairs = [(a, b) for a in whole for b in parts if isinstance(a, int) and isinstance(b, int) and 0 < b < a]
    return {a // b for a, b in pairs}


def _is_by_name(module: SourceModule, node: ast.expr) -> bool:
    """Tell a quotient by what is called a number of parts that are accumulated."""
    values = [node, *module.definitions(node)] if isinstance(node, ast.Name) else [node]
    return any(
        isinstance(each, ast.BinOp)
        and isinstance(each.op, ast.Div)
        and _ACCUMULATED.search(ast.unparse(each.right))
        for each in values
    )


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
    made = [each for each in value_origins(module, node) if isinstance(each, ast.Call)]
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
