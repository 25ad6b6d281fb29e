# SPDX-License-Identifier: Apache-2.0
"""The result of a function that gives none."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.live_variables import value_uses
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.signatures import returns_nothing


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

    Evidence: 186 repositories, beds A, C, E, F, H, K, M, P, R, S, T, V, W, X: 23 true, 6 debatable, 2 false.
    """

    code = "VALUE014"
    holds_anywhere = True

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a name that is given such a result and read later."""
        if "torch" not in module.text:
            return
        for node in module.all(ast.Assign):
            parts = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]
            for call in (each for each in parts if isinstance(each, ast.Call)):
                function = module.functions.target(call)
                if (
                    function is not None
                    and returns_nothing(module, function)
                    and _is_result_read(module, node)
                ):
                    name = getattr(function, "name", "")
                    yield At(
                        node, f"{name}() returns nothing: {ast.unparse(node.targets[0])!r} is given None."
                    )


def _is_result_read(module: SourceModule, node: ast.Assign) -> bool:
    """Tell whether what is stored is used; of an item this is taken to be so."""
    target = node.targets[0]
    if isinstance(target, ast.Attribute):
        return bool(module.program.attributes_read.get(target.attr))
    if not isinstance(target, ast.Name):
        return True
    if not _is_only_returned_and_discarded(module, node, target.id):
        return _is_read_later(module, node, target)
    return False


def _is_only_returned_and_discarded(module: SourceModule, node: ast.Assign, name: str) -> bool:
    """Tell a name that is only given back, to callers who throw it away: nobody reads it."""
    function = module.scope(node)
    reads = [each for each in module.reads(name) if module.scope(each) is function]
    if not isinstance(function, ast.FunctionDef) or not reads:
        return False
    calls = module.functions.callers(function)
    is_dropped = bool(calls) and all(isinstance(module.home(each).parents[each], ast.Expr) for each in calls)
    return is_dropped and all(isinstance(module.parents[each], ast.Return) for each in reads)


def _is_read_later(module: SourceModule, node: ast.Assign, target: ast.Name) -> bool:
    scope = module.scope(node)
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return value_uses(module, scope).read_later.get((node, target.id), False)
    return any(
        each.lineno > node.lineno and _can_read_assigned_value(module, each, node)
        for each in module.reads(target.id)
        if isinstance(each, ast.Name)
    )


def _can_read_assigned_value(module: SourceModule, read: ast.Name, node: ast.Assign) -> bool:
    """Tell whether a read may give what a line has stored: it is of the same variable, and nothing stored another between."""
    scope = module.scope(node)
    if module.names.owner(read.id, module.index.scope_of[read]) is not scope:
        return False
    bound = [module.resolver.statement(each.node) for each in module.resolver.reaching(read)]
    return module.scope(read) is not scope or node in bound
