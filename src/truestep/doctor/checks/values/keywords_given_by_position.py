# SPDX-License-Identifier: Apache-2.0
"""`f(*kwargs)`."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, replaced


class KeywordsGivenByPosition(SourceCheck):
    """A function hands its keyword arguments on with one star.

    Why: one star gives the names of the arguments, as positional ones; their values are lost.

    Bad:
        def step(batch, **kwargs):
            return compute_loss(batch, *kwargs)  # here

    Good:
        def step(batch, **kwargs):
            return compute_loss(batch, **kwargs)

    Fix: two stars.
    """

    code = "VALUE007"
    words = ("*",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `*kwargs` in a call, where `**kwargs` is a parameter of the function around."""
        for star in module.all(ast.Starred):
            call, scope = module.parents.get(star), module.scope(star)
            parameter = scope.args.kwarg if not isinstance(scope, ast.Module) else None
            if isinstance(call, ast.Call) and isinstance(star.value, ast.Name) and parameter is not None:
                if parameter.arg == star.value.id and len(module.bindings(star.value)) == 1:
                    yield At(call, f"*{star.value.id} hands on the names of the arguments, not their values.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Give it two stars, behind what is given by position."""
        star = next(each for each in node.args if isinstance(each, ast.Starred))
        if node.args[-1] is not star or node.keywords:
            return []
        return [replaced(module, star, f"*{ast.unparse(star)}")]
