# SPDX-License-Identifier: Apache-2.0
"""A triplet loss that draws apart what belongs together."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.terms import terms_of, value_here

_POSITIVE = re.compile(r"(^|_)(a?p|pos|positives?|same)(_|$)", re.IGNORECASE)
_NEGATIVE = re.compile(r"(^|_)(a?n|neg|negatives?|other)(_|$)", re.IGNORECASE)
_DISTANCES = ("pairwise_distance", "cdist", "norm", "dist", "mse_loss", "PairwiseDistance", "pow")
_SIMILARITIES = ("cosine_similarity", "CosineSimilarity", "matmul", "dot", "bmm", "einsum")
_MARGIN = re.compile(r"margin|alpha", re.IGNORECASE)


class MarginOnWrongSide(SourceCheck):
    """A margin loss subtracts the positive pair's distance from the negative one's, or with similarities the reverse.

    Why: it is smallest where positives lie far apart and negatives close: the embedding learns the opposite.

    Bad:
        def triplet(anchor, positive, negative, margin=0.3):
            d_pos = (anchor - positive).pow(2).sum(1)
            d_neg = (anchor - negative).pow(2).sum(1)
            return F.relu(d_neg - d_pos + margin).mean()  # here

    Good:
        def triplet(anchor, positive, negative, margin=0.3):
            d_pos = (anchor - positive).pow(2).sum(1)
            d_neg = (anchor - negative).pow(2).sum(1)
            return F.relu(d_pos - d_neg + margin).mean()

    Fix: relu(distance to the positive - distance to the negative + margin).
    """

    code = "LOSS047"
    words = ("margin", "alpha")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a hinge of a difference of two distances, or similarities, told apart by what they are computed from."""
        for call in module.all(ast.Call):
            inner = _hinged(module, call)
            if inner is None:
                continue
            terms = terms_of(module, inner)
            margins = [each for each in terms if _MARGIN.search(ast.unparse(each.node))]
            pair = [each for each in terms if each not in margins]
            if (
                len(margins) != 1
                or margins[0].sign < 0
                or {each.sign for each in pair} != {1, -1}
                or len(pair) != 2
            ):
                continue
            added, taken = sorted(pair, key=lambda each: -each.sign)
            sides = _side(module, added.node), _side(module, taken.node)
            kind = {_measure(module, added.node), _measure(module, taken.node)}
            wrong = {"distance": ("negative", "positive"), "similarity": ("positive", "negative")}
            if len(kind) == 1 and sides == wrong.get(kind.pop() or ""):
                yield At(call, "This loss falls as positives move apart and negatives together.", RISK)


def _hinged(module: SourceModule, call: ast.Call) -> ast.expr | None:
    name = module.qualify(call.func) or ""
    method = call.func.attr if isinstance(call.func, ast.Attribute) and not name else ""
    if method in ("relu", "clamp", "clamp_min"):
        return call.func.value  # type: ignore[attr-defined, no-any-return]
    if name in ("torch.nn.functional.relu", "torch.relu", "torch.clamp", "torch.clamp_min", "torch.maximum"):
        return call.args[0] if call.args else None
    return None


def _made(module: SourceModule, node: ast.expr) -> ast.expr:
    return (value_here(module, node) or node) if isinstance(node, ast.Name) else node


def _side(module: SourceModule, node: ast.expr) -> str | None:
    """Tell by the names that a value is computed from whether it is of positives or of negatives."""
    for value in (node, _made(module, node)):
        names = [each.id for each in walk(value) if isinstance(each, ast.Name)]
        positive, negative = any(map(_POSITIVE.search, names)), any(map(_NEGATIVE.search, names))
        if positive != negative:
            return "positive" if positive else "negative"
    return None


def _measure(module: SourceModule, node: ast.expr) -> str | None:
    """Tell a distance from a similarity, by how it is computed."""
    value = _made(module, node)
    names = {getattr(each, "attr", None) or getattr(each, "id", None) for each in walk(value)}
    if names & set(_SIMILARITIES) or any(isinstance(each, ast.MatMult) for each in ast.walk(value)):
        return "similarity"
    return (
        "distance"
        if names & set(_DISTANCES) or any(isinstance(each, ast.Pow) for each in ast.walk(value))
        else None
    )
