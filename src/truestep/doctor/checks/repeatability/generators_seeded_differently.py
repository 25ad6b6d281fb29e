# SPDX-License-Identifier: Apache-2.0
"""A seed undone by a constant."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, replaced

SEEDS = functions("seeds the host", "seeds devices")


class GeneratorsSeededDifferently(SourceCheck):
    """A function that seeds from its argument seeds one generator with a constant.

    Why: that generator is the same for every seed; with torch.cuda.manual_seed_all(0) all GPU randomness is.

    Bad:
        def fix_all(seed):
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            torch.cuda.manual_seed_all(0)  # here

    Good:
        def fix_all(seed):
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)

    Fix: torch.manual_seed(seed) covers every device; use one number for all.
    """

    code = "SEED001"
    words = ("seed",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a constant seed beside a seed from a parameter, or two different constants in one block."""
        by_scope: dict[ast.AST, list[ast.Call]] = {}
        for call in module.calls(*SEEDS):
            if len(call.args) == 1:
                by_scope.setdefault(module.scope(call), []).append(call)
        for calls in by_scope.values():
            calls.sort(key=lambda call: call.lineno)
            for call in calls:
                near = isinstance(call.args[0], ast.Constant) and call.lineno - calls[0].lineno < 12
                variable = _seeds_beside(module, call, calls) if near else set()
                if variable:
                    name = ast.unparse(call.func)
                    yield At(
                        call,
                        f"{name} is given a constant, not {', '.join(sorted(variable))}.",
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Give all the same seed."""
        home = module.scope(node)
        others = {
            ast.unparse(call.args[0])
            for call in module.calls(*SEEDS)
            if module.scope(call) is home and call.args and isinstance(call.args[0], ast.Name)
        }
        return [replaced(module, node.args[0], others.pop())] if len(others) == 1 else []


def _seeds_beside(module: SourceModule, constant: ast.Call, calls: list[ast.Call]) -> set[str]:
    """Return the variables that other generators are seeded with, as often; none where this one gets them too."""
    variable = [
        call
        for call in calls
        if isinstance(call.args[0], ast.Name) and module.loop(call) is module.loop(constant)
    ]
    again = any(
        module.qualify(call.func) == module.qualify(constant.func) and isinstance(call.args[0], ast.Name)
        for call in calls
    )
    return set() if again else {ast.unparse(call.args[0]) for call in variable}
