# SPDX-License-Identifier: Apache-2.0
"""One model's parameters given to an optimizer twice."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import argument, seen_through

_NAMES = ("parameters", "named_parameters")
_HOLDS = (*_NAMES, "list", "chain")  # what these give holds all of it


class ParametersGivenTwice(SourceCheck):
    """What an optimizer is given names the parameters of one model twice.

    Why: the second place was meant for another model, which is then never trained.

    Bad:
        encoder, decoder = nn.Linear(2, 2), nn.Linear(2, 2)
        params = list(encoder.parameters()) + list(encoder.parameters())
        opt = torch.optim.SGD(params, lr=0.1)  # here

    Good:
        encoder, decoder = nn.Linear(2, 2), nn.Linear(2, 2)
        params = list(encoder.parameters()) + list(decoder.parameters())
        opt = torch.optim.SGD(params, lr=0.1)

    Fix: name each model once.
    """

    code = "PARAM044"
    words = ("arameters()",)
    shows_as = ("PARAM034",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an optimizer whose first argument holds two equal calls of parameters(), outside of comprehensions."""
        for call in module.all(ast.Call):
            if module.kind(call) != "optimizer":
                continue
            given = seen_through(module, argument(call, 0, "params"))
            parts = list(_parts_of(module, given, 0)) if given is not None else []
            if any(isinstance(each, ast.comprehension | ast.Lambda) for each in parts):
                continue
            models = [name for each in parts if (name := _model_of(each)) is not None]
            twice = [each for each in models if models.count(each) > 1]
            if twice:
                yield At(call, f"The parameters of {twice[0]} are given twice.", BUG)


def _parts_of(module: SourceModule, node: ast.expr, depth: int) -> Iterator[ast.AST]:
    """Yield all that an expression holds, through the names of what was put together before."""
    for each in walk(node):
        yield each
        made = seen_through(module, each) if isinstance(each, ast.Name) and depth < MAX_DEPTH else each
        called = dotted(made.func) if isinstance(made, ast.Call) else None
        if made is not each and isinstance(made, ast.Call) and (called or "").endswith(_HOLDS):
            yield from _parts_of(module, made, depth + 1)


def _model_of(node: ast.AST) -> str | None:
    method = node.func if isinstance(node, ast.Call) and not node.args else None
    return dotted(method.value) if isinstance(method, ast.Attribute) and method.attr in _NAMES else None
