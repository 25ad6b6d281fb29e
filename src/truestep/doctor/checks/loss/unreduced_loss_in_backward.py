# SPDX-License-Identifier: Apache-2.0
"""backward() of a vector."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.losses import losses_of, reduction_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, inserted_behind
from truestep.doctor.source.values import value_origins


class UnreducedLossInBackward(SourceCheck):
    """backward() is called on a loss with reduction="none".

    Why: it is a vector: RuntimeError, "grad can be implicitly created only for scalar outputs".

    Bad:
        loss = F.cross_entropy(net(x), y, reduction="none")
        loss.backward()  # here

    Good:
        loss = F.cross_entropy(net(x), y, reduction="none")
        loss.mean().backward()

    Fix: weight it, then .mean() or .sum().
    """

    code = "LOSS013"
    words = ("none",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report backward on a name that holds an unreduced loss on every path."""
        unreduced = {call for call in losses_of(module) if reduction_of(module, call) == "none"}
        for call in module.method_calls("backward"):
            loss = call.func.value if isinstance(call.func, ast.Attribute) else None
            values = (
                list(value_origins(module, loss))
                if loss is not None and not call.args and not call.keywords
                else []
            )
            if values and all(each in unreduced for each in values):
                yield At(call, 'backward() of a loss with reduction="none": a vector, which raises.')

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Take the mean."""
        return [inserted_behind(module, node.func.value, ".mean()")]
