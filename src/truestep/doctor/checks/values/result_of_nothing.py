# SPDX-License-Identifier: Apache-2.0
"""The result of a function that gives none."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.signatures import gives_nothing
from truestep.doctor.source.uses import uses_of


class ResultOfNothing(SourceCheck):
    """What a function gives back is used, and the function gives nothing back.

    Why: it is None: nothing is added, logged or trained on, or the next line fails.

    Bad:
        def smooth(values):
            for index in range(1, len(values)):
                values[index] = 0.9 * values[index - 1] + 0.1 * values[index]

        level = smooth(torch.rand(8))  # here
        print(level)

    Good:
        def smooth(values):
            for index in range(1, len(values)):
                values[index] = 0.9 * values[index - 1] + 0.1 * values[index]
            return values

        level = smooth(torch.rand(8))
        print(level)

    Fix: return the value.
    """

    code = "VALUE014"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a name that is given such a result and read later."""
        if "torch" not in module.text:
            return
        for node in module.all(ast.Assign):
            call = node.value
            if not isinstance(call, ast.Call) or not isinstance(node.targets[0], ast.Name):
                continue
            function = module.target(call)
            if function is not None and gives_nothing(module, function) and _is_read(module, node):
                name = getattr(function, "name", "")
                yield At(node, f"{name}() returns nothing: {node.targets[0].id!r} is None.")


def _is_read(module: SourceModule, node: ast.Assign) -> bool:
    scope, name = module.scope(node), node.targets[0]
    assert isinstance(name, ast.Name)
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return uses_of(module, scope).read_later.get((node, name.id), False)
    return any(each.lineno > node.lineno for each in module.reads(name.id))
