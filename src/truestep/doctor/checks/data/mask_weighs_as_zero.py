# SPDX-License-Identifier: Apache-2.0
"""A mask that gives the score 0 before a softmax."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.outputs import is_softmax
from truestep.doctor.source.values import argument, literal, value_origins

_SMALL = 20.0  # a score that far below 0 may be meant


class MaskWeighsAsZero(SourceCheck):
    """Scores are masked with 0, or with a number next to it, and then go into a softmax.

    Why: a score of 0 is as good as any: exp(0) is 1. What is masked gets its share of the attention, often the greatest.

    Bad:
        scores = torch.randn(2, 4, 4)
        mask = torch.ones(4, 4).tril() == 0
        scores = scores.masked_fill(mask, 0.0)
        weights = scores.softmax(-1)  # here

    Good:
        scores = torch.randn(2, 4, 4)
        mask = torch.ones(4, 4).tril() == 0
        scores = scores.masked_fill(mask, float("-inf"))
        weights = scores.softmax(-1)

    Fix: masked_fill(mask, float("-inf")).
    """

    code = "DATA039"
    words = ("masked_fill",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a softmax on some way to whose input masked_fill comes last, with a number that is near 0."""
        for call in module.all(ast.Call):
            if not is_softmax(module, call):
                continue
            given = _given(module, call)
            fills = [each for each in value_origins(module, given) if _is_fill(module, each)] if given else []
            if any(_leaves_places_out(module, each) for each in fills):
                continue
            if any(fills) or (given is not None and _is_filled_in_place(module, call, given)):
                yield At(call, "A masked score is 0 here, and 0 is as good a score as any.", BUG)


def _given(module: SourceModule, call: ast.Call) -> ast.expr | None:
    """Return what a softmax is taken of: of a function's or layer's argument, or of what a method is called on."""
    name = module.qualify(call.func) or ""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("softmax", "log_softmax") and not name:
        return call.func.value
    return argument(call, 0, "input")


def _is_fill(module: SourceModule, node: ast.expr | None) -> bool:
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    if method not in ("masked_fill", "masked_fill_") or not isinstance(node, ast.Call):
        return False
    value = literal(module, argument(node, 1, "value"))
    return isinstance(value, int | float) and abs(value) < _SMALL


def _leaves_places_out(module: SourceModule, fill: ast.expr | None) -> bool:
    """Tell a mask that fills the targets too: it is of places, each with all of its scores, and not of one's alternatives."""
    mask = argument(fill, 0, "mask") if isinstance(fill, ast.Call) else None
    filled = [
        dotted(each.func.value)
        for each in module.method_calls("masked_fill", "masked_fill_")
        if mask is not None and isinstance(each.func, ast.Attribute)
        if (given := argument(each, 0, "mask")) is not None and dotted(given) == dotted(mask)
        if module.scope(each) is module.scope(mask)
    ]
    return len(set(filled)) > 1


def _is_filled_in_place(module: SourceModule, softmax: ast.Call, given: ast.expr) -> bool:
    """Tell `scores.masked_fill_(mask, 0)` as a statement of its own, before the softmax."""
    place = dotted(given)
    for call in module.method_calls("masked_fill_"):
        same = isinstance(call.func, ast.Attribute) and dotted(call.func.value) == place is not None
        if same and module.scope(call) is module.scope(softmax) and call.lineno < softmax.lineno:
            return isinstance(module.parents[call], ast.Expr) and _is_fill(module, call)
    return False
