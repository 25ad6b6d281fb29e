# SPDX-License-Identifier: Apache-2.0
"""A parameter whose value is replaced before anything reads it."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import is_none, walk
from truestep.doctor.source.uses import names_read, uses_of


class ParameterOverwritten(SourceCheck):
    """A function gives one of its parameters a value of its own before it reads what it was called with.

    Why: whatever the caller gives has no effect.

    Bad:
        def noisy(images, strength):
            strength = 0.1  # here
            return images + strength * torch.randn_like(images)

        images = noisy(x, strength=0.5)

    Good:
        def noisy(images, strength):
            return images + strength * torch.randn_like(images)

        images = noisy(x, strength=0.5)

    Fix: delete the assignment, or the parameter.
    """

    code = "VALUE013"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such an assignment where a call in the program gives the parameter a value."""
        if "torch" not in module.text:
            return
        for function in module.functions:
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            stored = _first_stores(module, function)
            for name in [each.arg for each in arguments if each.arg in stored]:
                if name in uses_of(module, function).read_at_start or name.startswith("_"):
                    continue
                given = [module.argument_for(function, call, name) for call in module.callers(function)]
                own = [each for each in given if each is not None and not is_none(each)]
                if any(each not in [*function.args.defaults, *function.args.kw_defaults] for each in own):
                    text = f"{name!r} is replaced before anything reads what the caller gave."
                    yield At(stored[name], text, RISK)


def _first_stores(
    module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> dict[str, ast.Assign]:
    """Return where names are first given a value in a function's own body, if that is read later."""
    found: dict[str, ast.Assign] = {}
    read = names_read(function)
    for node in walk(function):
        if isinstance(node, ast.Assign) and module.scope(node) is function:
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in read:
                    found.setdefault(target.id, node)
    return found
