# SPDX-License-Identifier: Apache-2.0
"""Class indices as floats."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, QUESTION, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, renamed
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import argument, given, value_origins

WRONG = operations(numbers="home rounded whole")
_NO_FRACTIONS = operations(numbers="whole")
_INDICES = operations(numbers="indices index") | {"randint"}


class FloatClassIndices(SourceCheck):
    """Targets of cross entropy are converted to a type that class indices can't have.

    Why: floats of shape (batch,) and 32-bit integers raise RuntimeError; floats of shape (batch, classes)
    mean probabilities.

    Bad:
        loss = F.cross_entropy(net(x), y.float())  # here
        accuracy = (net(x).argmax(1) == y).sum() / len(y)

    Good:
        loss = F.cross_entropy(net(x), y.long())
        accuracy = (net(x).argmax(1) == y).sum() / len(y)

    Fix: class indices are int64 of shape (batch,): y.long().
    """

    code = "LOSS004"
    words = ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a conversion written straight in the call, unless one_hot stands under it."""
        for call in losses_of(module, "cross_entropy", "nll_loss"):
            target = given(module, call, 1, "target")
            if (
                isinstance(target, ast.Call)
                and isinstance(target.func, ast.Attribute)
                and target.func.attr in WRONG
            ):
                source = ast.unparse(target.func.value)
                if isinstance(target.func.value, ast.Name) and not any(
                    word in source for word in ("one_hot", "prob", "soft")
                ):
                    certain = (
                        target.func.attr in _NO_FRACTIONS
                        or call in losses_of(module, "nll_loss")
                        or _are_indices(module, target.func.value)
                    )
                    text = (
                        f"Class indices are converted with .{target.func.attr}(): cross entropy takes int64."
                    )
                    if not certain:
                        text = (
                            f"Are these probabilities? Class indices after .{target.func.attr}() are refused."
                        )
                    yield At(call, text, BUG if certain else QUESTION)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Convert to int64."""
        target = argument(node, 1, "target")
        if not isinstance(target, ast.Call):  # what else reads the name may mean the fractions
            raise SourceRewriteError
        return [renamed(module, target.func, "long")]


def _are_indices(module: SourceModule, target: ast.Name) -> bool:
    """Tell targets that are compared with classes, given to such a loss as they are, or made as indices."""
    for use in module.reads(target.id):
        outer = module.parents[use]
        if isinstance(outer, ast.Compare) and module.scope(use) is module.scope(target):
            return True
    if any(
        getattr(given(module, each, 1, "target"), "id", "") == target.id
        for each in losses_of(module, "cross_entropy", "nll_loss")
    ):
        return True
    made = [each.func for each in value_origins(module, target) if isinstance(each, ast.Call)]
    return any((own_name(each) or "") in _INDICES for each in made)
