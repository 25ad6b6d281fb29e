# SPDX-License-Identifier: Apache-2.0
"""A gradient kept by reference, then cleared in place."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


class GradientAliasZeroed(SourceCheck):
    """x.grad is kept under another name, then zeroed in place.

    Why: both are one tensor: what was kept is zero too (and without clearing, it grows).

    Bad:
        g = x.grad
        x.grad.zero_()  # here
        print(g)

    Good:
        g = x.grad.clone()
        x.grad.zero_()
        print(g)

    Fix: x.grad.clone(), or x.grad = None instead of zero_().
    """

    code = "GRAD014"
    words = (".grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report zero_() of a gradient that the block stored before and reads later."""
        for call in module.method_calls("zero_"):
            cleared = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
            if cleared is None or not cleared.endswith(".grad"):
                continue
            block = module.parents[module.statement(call)]
            for kept in module.all(ast.Assign):
                same = (
                    dotted(kept.value) == cleared
                    and module.parents[kept] is block
                    and kept.lineno < call.lineno
                )
                target = kept.targets[0]
                if same and isinstance(target, ast.Name) and self._used_after(module, target.id, call.lineno):
                    yield At(call, f"{target.id!r} is the same tensor as {cleared}: it becomes zero too.")

    def _used_after(self, module: SourceModule, name: str, line: int) -> bool:
        return any(
            node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > line
            for node in module.all(ast.Name)
        )
