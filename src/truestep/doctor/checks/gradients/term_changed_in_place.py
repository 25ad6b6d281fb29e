# SPDX-License-Identifier: Apache-2.0
"""`total = term; total += other`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class TermChangedInPlace(SourceCheck):
    """A loss gets a second name, and something is added to it in place.

    Why: += on a tensor changes the tensor under both names: the logged term is the sum.

    Bad:
        total = term
        total += 0.1 * other  # here
        log(term.item(), total.item())

    Good:
        total = term + 0.1 * other
        log(term.item(), total.item())

    Fix: total = term + other.

    Evidence: the plain form of row 67 of docs/mistakes.md; 186 repositories: said 3 times, not judged.
    """

    code = "GRAD023"
    words = ("+=",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `a = b`, then `a += ...` in one block, where b is read to be logged later."""
        for node in module.all(ast.AugAssign):
            if not isinstance(node.target, ast.Name) or not isinstance(node.op, ast.Add):
                continue
            alias = self._aliased_name(module, node)
            if alias is not None and any(
                isinstance(call.func, ast.Attribute)
                and isinstance(call.func.value, ast.Name)
                and call.func.value.id == alias
                and call.lineno > node.lineno
                for call in module.method_calls("item", "detach")
            ):
                yield At(node, f"{alias!r} is the same tensor: it is changed too.", RISK)

    def _aliased_name(self, module: SourceModule, node: ast.AugAssign) -> str | None:
        assert isinstance(node.target, ast.Name)
        block = module.parents[node]
        for binding in module.names.bindings(node.target):
            same = (
                isinstance(binding.node, ast.Assign)
                and module.parents[binding.node] is block
                and binding.line < node.lineno
            )
            if same and isinstance(binding.value, ast.Name):
                return binding.value.id
        return None
