# SPDX-License-Identifier: Apache-2.0
"""stack where cat is meant."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.signatures import own_name

_NAMES = operations()


class BatchesStacked(SourceCheck):
    """The outputs for several batches are joined with torch.stack.

    Why: it adds an axis (batches, batch, ...) where one long batch is meant, and fails when the last is
    smaller.

    Bad:
        p = torch.stack([net(x) for x in xs])  # here

    Good:
        p = torch.cat([net(x) for x in xs])

    Fix: torch.cat along the batch axis.
    """

    code = "DATA007"
    words = ("stack",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report stack over a comprehension whose element applies a module to the loop's own variable."""
        for call in module.calls("torch.stack"):
            given = call.args[0] if call.args else None
            if isinstance(given, ast.ListComp) and len(call.args) == 1 and not call.keywords:
                element, source = given.elt, given.generators[0]
                applies = (
                    isinstance(element, ast.Call)
                    and module.kind(element.func) == "module"
                    and len(element.args) == 1
                )
                bare = applies and isinstance(element, ast.Call) and isinstance(element.args[0], ast.Name)
                if (
                    bare
                    and isinstance(source.target, ast.Name)
                    and isinstance(source.iter, ast.Name)
                    and not self._members(module, element)
                    and not self._is_tensor(module, source.iter)
                ):
                    yield At(call, "stack gives (batches, batch, ...): cat gives one batch.", RISK)

    def _is_tensor(self, module: SourceModule, iterated: ast.Name) -> bool:
        """Tell a tensor that is taken apart: stack puts its first axis back."""
        made = [each.value.func for each in module.bindings(iterated) if isinstance(each.value, ast.Call)]
        return any((own_name(each) or "") in _NAMES for each in made)

    def _members(self, module: SourceModule, element: ast.expr) -> bool:
        """`[layer(x) for ...]` over members of an ensemble is a stack that is meant."""
        function = element.func if isinstance(element, ast.Call) else element
        return isinstance(function, ast.Name) and any(each.how == "for" for each in module.bindings(function))
