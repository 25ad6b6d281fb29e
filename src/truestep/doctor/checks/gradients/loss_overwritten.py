# SPDX-License-Identifier: Apache-2.0
"""One loss replaced by the next before backward."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import last_operations


class LossOverwritten(SourceCheck):
    """A loss is computed, then its name is given to another loss before anything used the first.

    Why: only the last loss is trained; what the first was for gets no gradient.

    Bad:
        loss = F.cross_entropy(net(x), y)  # here
        loss = F.mse_loss(net(x), F.one_hot(y, 3).float())
        loss.backward()

    Good:
        first = F.cross_entropy(net(x), y)
        second = F.mse_loss(net(x), F.one_hot(y, 3).float())
        (first + second).backward()

    Fix: add the losses, or give each its own name.
    """

    code = "GRAD012"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report two assignments of losses to one name in one block, with no use between them."""
        for call in module.method_calls("backward"):
            name = call.func.value if isinstance(call.func, ast.Attribute) else None
            if not isinstance(name, ast.Name):
                continue
            home = module.parents[module.statement(call)]
            before = [each for each in self._assignments(module, name) if each.lineno < call.lineno]
            certain = [each for each in before if module.parents[each] is home]
            for first in before:
                second = next((each for each in certain if each.lineno > first.lineno), None)
                if (
                    second is not None
                    and self._leads_to(module, first, home)
                    and self._are_losses(module, first, second)
                    and not self._used(module, name.id, first, second)
                ):
                    line = second.lineno
                    yield At(first, f"{name.id!r} is overwritten on line {line} before it was used.")
                    break

    def _assignments(self, module: SourceModule, name: ast.Name) -> list[ast.Assign]:
        nodes = [binding.node for binding in module.bindings(name) if binding.how == "assign"]
        return sorted((each for each in nodes if isinstance(each, ast.Assign)), key=lambda each: each.lineno)

    def _leads_to(self, module: SourceModule, assignment: ast.Assign, home: ast.AST) -> bool:
        """Tell whether only branches of `if` stand between an assignment and the block."""
        for each in module.ancestors(assignment):
            if each is home:
                return True
            if not isinstance(each, ast.If):
                return False
        return False

    def _are_losses(self, module: SourceModule, *assignments: ast.Assign) -> bool:
        return all(
            isinstance(each.value, ast.Call)
            and (
                module.kind(each.value.func) == "loss"
                or any(
                    "loss" in (op or "") or op == "cross_entropy"
                    for op in last_operations(module, each.value)
                )
            )
            for each in assignments
        )

    def _used(self, module: SourceModule, name: str, first: ast.Assign, second: ast.Assign) -> bool:
        return any(
            node.id == name
            and isinstance(node.ctx, ast.Load)
            and first.lineno < node.lineno <= second.lineno
            and node not in ast.walk(first)
            for node in module.all(ast.Name)
        )
