# SPDX-License-Identifier: Apache-2.0
"""One loss replaced by the next before backward."""

import ast
import bisect
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import receiver_of
from truestep.doctor.source.value_origins import last_operations


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

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/relativistic_gan/relativistic_gan.py:152.
    """

    code = "GRAD012"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report two assignments of losses to one name in one block, with no use between them."""
        done: set[tuple[ast.AST, str]] = set()
        for call in module.method_calls("backward"):
            name = receiver_of(call)
            home = module.parents[module.statement(call)]
            if isinstance(name, ast.Name) and (home, name.id) not in done:
                done.add((home, name.id))
                yield from self._find_overwritten_losses(module, name, home)

    def _find_overwritten_losses(self, module: SourceModule, name: ast.Name, home: ast.AST) -> Iterator[At]:
        nodes = [each.node for each in module.names.bindings(name) if each.how == "assign"]
        assigned = sorted((each for each in nodes if isinstance(each, ast.Assign)), key=_line_number)
        certain = [each for each in assigned if module.parents[each] is home]
        reads = sorted(each.lineno for each in module.reads(name.id))
        for first in assigned:
            place = bisect.bisect_right(certain, first.lineno, key=_line_number)
            second = certain[place] if place < len(certain) else None
            if second is None or not self._is_only_under_branches(module, first, home):
                continue
            used = bisect.bisect_right(reads, first.end_lineno or first.lineno)
            is_used = used < len(reads) and reads[used] <= (second.end_lineno or second.lineno)
            if not is_used and self._are_losses(module, first, second):
                yield At(first, f"{name.id!r} is overwritten on line {second.lineno} before it was used.")
                return

    def _is_only_under_branches(self, module: SourceModule, assignment: ast.Assign, home: ast.AST) -> bool:
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


def _line_number(node: ast.stmt) -> int:
    return node.lineno
