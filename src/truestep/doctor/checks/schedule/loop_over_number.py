# SPDX-License-Identifier: Apache-2.0
"""`for epoch in 10`."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, wrapped
from truestep.doctor.source.values import literal


class LoopOverNumber(SourceCheck):
    """A loop runs over a number.

    Why: an int is not iterable: TypeError.

    Bad:
        num_epochs = 4
        for epoch in num_epochs:  # here
            train()

    Good:
        num_epochs = 4
        for epoch in range(num_epochs):
            train()

    Fix: for epoch in range(num_epochs).
    """

    code = "SCHED006"
    words = ("epoch",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loop over a name that is an integer for certain."""
        for loop in module.all(ast.For):
            if type(literal(module, loop.iter)) is int:
                yield At(loop, f"{ast.unparse(loop.iter)} is a number: it can't be iterated over.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Count up to it."""
        return wrapped(module, node.iter, "range")
