# SPDX-License-Identifier: Apache-2.0
"""A term that exists only sometimes."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.counters import counted_loops
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Scope
from truestep.doctor.source.values import constant


class LossUnbound(SourceCheck):
    """A loss term is computed under a condition and used without it.

    Why: UnboundLocalError where the condition is false; or, in a loop, the value of an earlier iteration.

    Bad:
        for step in range(100):
            if step > 10:
                adv = F.mse_loss(net(x), y)
            total = F.l1_loss(net(x), y) + adv  # here

    Good:
        for step in range(100):
            adv = torch.zeros(())
            if step > 10:
                adv = F.mse_loss(net(x), y)
            total = F.l1_loss(net(x), y) + adv

    Fix: give it a value (0) before the condition.
    """

    code = "LOSS016"
    words = ("if ",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a name bound by a loss under one `if` without else, and read after it."""
        for test in module.all(ast.If):
            if test.orelse or any(
                isinstance(each, ast.Continue | ast.Break | ast.Return | ast.Raise) for each in test.body
            ):
                continue
            for assignment in (each for node in test.body for each in module.inside(node, ast.Assign)):
                target = assignment.targets[0]
                if isinstance(target, ast.Name) and self._is_loss(module, assignment.value):
                    yield from self._reads(module, test, target)

    def _is_loss(self, module: SourceModule, value: ast.expr) -> bool:
        names = {each.id for each in module.inside(value, ast.Name)}
        if names & module.of_program(_gone_backward).get(module.scope(value), set()):
            return True  # made of what goes backward here
        if not isinstance(value, ast.Call):
            return False
        name = module.qualify(value.func) or ""
        return module.kind(value.func) == "loss" or (
            name.startswith("torch.nn.functional.") and ("loss" in name or "entropy" in name)
        )

    def _reads(self, module: SourceModule, test: ast.If, target: ast.Name) -> Iterator[At]:
        if isinstance(test.test, ast.Constant):  # `if True:` is no condition
            return
        first = _holds_at_first(module, test)
        bindings = module.bindings(target)
        if any(test not in module.ancestors(each.node) for each in bindings):
            return
        block = module.parents[test]
        for node in module.all(ast.Name):
            later = (
                node.id == target.id
                and isinstance(node.ctx, ast.Load)
                and node.lineno > (test.end_lineno or 0)
            )
            if (
                later
                and module.parents[module.statement(node)] is block
                and module.scope(node) is module.scope(target)
            ):
                if not (first and _is_told(module, node)):
                    yield At(node, f"{target.id!r} has a value only where line {test.lineno} was true.")
                return


def _gone_backward(files: list[SourceModule]) -> dict[Scope, set[str]]:
    """Return the names on which a function calls backward(), by the function."""
    found: dict[Scope, set[str]] = {}
    for file in files:
        for call in file.method_calls("backward"):
            if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
                found.setdefault(file.scope(call), set()).add(call.func.value.id)
    return found


def _holds_at_first(module: SourceModule, test: ast.If) -> bool:
    """Tell `if i % k == 0:` in a loop that counts from 0: the name has a value from the first iteration on."""
    match test.test:
        case ast.Compare(
            left=ast.BinOp(left=ast.Name() as counter, op=ast.Mod()), ops=[ast.Eq()], comparators=[side]
        ):
            loop = module.loop(test)
            begun = isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call) and _is_from_zero(loop.iter)
            return constant(side) == 0 and begun and loop in (counted_loops(module, counter) or ())
    return False


def _is_from_zero(iterated: ast.Call) -> bool:
    """Tell `enumerate(loader)` and `range(n)`."""
    name = iterated.func.id if isinstance(iterated.func, ast.Name) else ""
    return not iterated.keywords and len(iterated.args) == 1 and name in ("enumerate", "range")


def _is_told(module: SourceModule, node: ast.Name) -> bool:
    """Tell `loss.item()`: an earlier value is shown, and nothing is computed with it."""
    outer = module.parents[node]
    return isinstance(outer, ast.Attribute) and outer.attr in operations(graph="left")
