# SPDX-License-Identifier: Apache-2.0
"""Class indices as floats."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, renamed
from truestep.doctor.source.values import argument, given

WRONG = operations(numbers="home rounded whole")


class FloatClassIndices(SourceCheck):
    """Targets of cross entropy are converted to a type that class indices can't have.

    Why: floats of shape (batch,) and 32-bit integers raise RuntimeError; floats of shape (batch, classes)
    mean probabilities.

    Bad:
        loss = F.cross_entropy(net(x), y.float())  # here

    Good:
        loss = F.cross_entropy(net(x), y.long())

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
                    yield At(
                        call,
                        f"Class indices are converted with .{target.func.attr}(): cross entropy takes int64.",
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Convert to int64."""
        target = argument(node, 1, "target")
        if not isinstance(target, ast.Call):  # what else reads the name may mean the fractions
            raise SourceRewriteError
        return [renamed(module, target.func, "long")]
