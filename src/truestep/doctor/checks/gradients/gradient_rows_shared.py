# SPDX-License-Identifier: Apache-2.0
"""A Jacobian whose rows are one tensor."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk


class GradientRowsShared(SourceCheck):
    """x.grad is appended to a list in a loop of backward() calls.

    Why: every entry is the same tensor, and gradients add up: all rows show the sum.

    Bad:
        rows = []
        for i in range(2):
            y[i].backward(retain_graph=True)
            rows.append(x.grad)  # here

    Good:
        rows = torch.autograd.functional.jacobian(f, x)

    Fix: torch.func.jacrev(f)(x), or append x.grad.clone() and clear it.
    """

    code = "GRAD015"
    words = (".grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report append of a bare .grad in a loop with a backward, unless the grad is set to None there."""
        for call in module.method_calls("append"):
            given = call.args[0] if call.args else None
            loop = module.enclosing(call, ast.For, ast.While)
            if not (isinstance(given, ast.Attribute) and given.attr == "grad") or loop is None:
                continue
            nodes = list(walk(loop))
            backward = any(
                isinstance(each, ast.Call)
                and isinstance(each.func, ast.Attribute)
                and each.func.attr == "backward"
                for each in nodes
            )
            anew = any(
                isinstance(each, ast.Attribute) and each.attr == "grad" and isinstance(each.ctx, ast.Store)
                for each in nodes
            )
            anew = anew or any(isinstance(each, ast.Attribute) and each.attr == "zero_grad" for each in nodes)
            if backward and not anew and not self._over_parameters(loop, given):
                yield At(call, "Every entry is the same tensor, to which each backward() adds.")

    def _over_parameters(self, loop: ast.AST, given: ast.Attribute) -> bool:
        """`for p in net.parameters(): grads.append(p.grad)` collects different tensors."""
        return isinstance(loop, ast.For) and ast.unparse(loop.target) in (
            ast.unparse(given.value),
            f"name, {ast.unparse(given.value)}",
        )
